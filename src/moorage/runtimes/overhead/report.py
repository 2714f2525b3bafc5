"""Report of a measurement: what was measured, the raw data, and the proposal.

A value that is written as it is to JSON; `lines` is the text for people.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from moorage.api.counted import counted
from moorage.runtimeclass.overhead_estimates import (
    MEBIBYTE,
    Activity,
    Growth,
    Interval,
    OverheadSample,
    Proposal,
)
from moorage.runtimes.overhead.options import MeasureOptions
from moorage.runtimes.overhead.processes import RuntimeProcesses
from moorage.runtimes.overhead.readings import Reading

_MOST_ERROR = 1024


class ProbePod(msgspec.Struct, frozen=True, kw_only=True):
    """A probe pod: its shape, what was read, and what follows. `error` is why it gave no sample.

    `outside_bytes` is the memory of the runtime's processes outside its cgroup, None where they
    cannot be seen; `cycle_cpu_us` the CPU time of one cycle of a busy pod, in microseconds.
    """

    name: str
    node: str
    containers: int
    payload_bytes: int
    activity: Activity
    source: str = ""
    readings: tuple[Reading, ...] = ()
    outside_bytes: int | None = None
    cycle_cpu_us: float | None = None
    processes: tuple[RuntimeProcesses, ...] = ()
    sample: OverheadSample | None = None
    error: str = ""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A measurement of a handler. `declared` is the overhead of its class, None without a class."""

    handler: str
    runtime_class: str
    declared: dict[str, str] | None
    measured_at: str
    options: MeasureOptions
    pods: tuple[ProbePod, ...]
    proposal: Proposal | None

    @property
    def samples(self) -> tuple[OverheadSample, ...]:
        return tuple(pod.sample for pod in self.pods if pod.sample is not None)

    @property
    def failures(self) -> tuple[ProbePod, ...]:
        """Return the probe pods that gave no sample."""
        return tuple(pod for pod in self.pods if pod.sample is None)


def shortened(text: str) -> str:
    """Return an error's text in one line of bounded length: a handler may send anything."""
    return " ".join(text.split())[:_MOST_ERROR]


def mebibytes(amount_bytes: float) -> str:
    return f"{amount_bytes / MEBIBYTE:.1f} MiB"


def lines(report: Report) -> Iterator[str]:
    """Yield the lines of a report for people."""
    nodes = sorted({pod.node for pod in report.pods if pod.node})
    yield f"handler    {report.handler}"
    yield f"class      {report.runtime_class or '(none)'}"
    yield f"nodes      {', '.join(nodes) or '-'}"
    yield f"pods       {len(report.samples)} measured, {len(report.failures)} failed"
    yield f"declared   {_amounts(report.declared)}"
    yield f"proposed   {_amounts(report.proposal.pod_fixed if report.proposal else None)}"
    if report.proposal is not None:
        yield from _proposal_lines(report.proposal)
    yield from _sight_lines(report.pods)
    for pod in report.failures:
        yield f"failed     {pod.name}: {pod.error}"


def _proposal_lines(proposal: Proposal) -> Iterator[str]:
    size = counted(proposal.containers, "container")
    pods = counted(proposal.samples, "pod")
    yield f"memory     {_interval(proposal.memory, mebibytes)} · {pods} of {size}"
    if proposal.cpu is not None:
        yield f"cpu        {_interval(proposal.cpu, _milli)}, idle"
    yield f"growth     {growth_text(proposal.memory_growth)}"


def growth_text(growth: Growth) -> str:
    """Return how memory grows, in a sentence."""
    parts = [f"{mebibytes(growth.base)} for one container"]
    if growth.per_container is not None:
        parts.append(f"{mebibytes(growth.per_container)} for each further one")
    if growth.per_payload_mebibyte is not None:
        share = growth.per_payload_mebibyte / MEBIBYTE
        parts.append(f"{share:.2f} MiB for each MiB that containers hold")
    return ", ".join(parts)


def _sight_lines(pods: Sequence[ProbePod]) -> Iterator[str]:
    """Yield the processes inside and outside the cgroup of the smallest idle pod."""
    shown = next((pod for pod in pods if pod.processes), None)
    if shown is None:
        if any(pod.sample is not None for pod in pods):
            yield "outside    processes outside the pod's cgroup cannot be seen from here"
        return
    for title, is_charged in (("in cgroup", True), ("outside", False)):
        listed = [one for one in shown.processes if one.is_charged is is_charged]
        text = ", ".join(
            f"{one.program}{f' ({one.count})' if one.count > 1 else ''} "
            f"{mebibytes(one.memory_bytes)}"
            for one in listed
        )
        yield f"{title:<10} {text or 'nothing'}"


def _interval(interval: Interval, shown: Callable[[float], str]) -> str:
    return (
        f"{shown(interval.estimate)} at percentile {interval.percentile:g}, "
        f"between {shown(interval.lower)} and {shown(interval.upper)} "
        f"with confidence {interval.confidence:.2f}"
    )


def _milli(amount: float) -> str:
    return f"{amount:.1f}m"


def _amounts(amounts: dict[str, str] | None) -> str:
    if amounts is None:
        return "-"
    return ", ".join(f"{name} {amount}" for name, amount in sorted(amounts.items())) or "nothing"
