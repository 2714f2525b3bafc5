"""Report of a measurement: what was measured, the raw data, and the proposal.

A value that is written as it is to JSON; `lines` is the text for people.
"""

from __future__ import annotations

import importlib
import io
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from moorage.api.text import counted
from moorage.linux.atomic_file import replace_file
from moorage.runtimeclass.overhead_estimates import (
    MEBIBYTE,
    Activity,
    Growth,
    Interval,
    OverheadSample,
    Proposal,
)
from moorage.runtimes.overhead.options import MeasurementError, MeasureOptions
from moorage.runtimes.overhead.readings import Reading, RuntimeProcesses

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


# Plots of a report: in the terminal by plotext, as a PNG by matplotlib.
#
# Both belong to the extra `moorage[plots]` and are imported when a plot is drawn.

_REMEDY = "install it with `pip install 'moorage[plots]'`"

Series = dict[str, list[float]]
"""Memory in MiB of the samples of each shape and activity, by its label."""


def series_of(samples: tuple[OverheadSample, ...]) -> Series:
    """Return the overhead of samples by shape and activity, sorted. Pure."""
    series: Series = defaultdict(list)
    for one in samples:
        payload = f" + {one.payload_bytes // MEBIBYTE} MiB" if one.payload_bytes else ""
        series[f"{one.containers}c{payload} {one.activity.value}"].append(
            one.memory_bytes / MEBIBYTE
        )
    return {label: sorted(values) for label, values in sorted(series.items())}


def terminal_plot(report: Report, width: int = 90, height: int = 20) -> str:
    """Return a plot of the samples as text. Raises MeasurementError without plotext or samples."""
    series = _series(report)
    plot = _library("plotext")
    plot.clear_figure()
    plot.plotsize(width, height)
    plot.theme("clear")
    plot.title(f"Overhead of {report.handler}, MiB")
    for position, (label, values) in enumerate(series.items(), start=1):
        plot.scatter([position] * len(values), values, label=label)
    plot.xticks(list(range(1, len(series) + 1)), list(series))
    if report.proposal is not None:
        plot.hline(report.proposal.memory.upper / MEBIBYTE)
    plot.ylim(0, _top(series, report))
    # The theme still resets colours at the end of each line.
    text: str = plot.uncolorize(plot.build())
    plot.clear_figure()
    return text


def write_png(report: Report, path: Path) -> None:
    """Write a plot of the samples to a PNG file.

    Raises MeasurementError without matplotlib or samples, OSError.
    """
    series = _series(report)
    figures = _library("matplotlib.figure")
    figure = figures.Figure(figsize=(9, 5), dpi=120, layout="constrained")
    axes = figure.subplots()
    for position, values in enumerate(series.values(), start=1):
        axes.scatter([position] * len(values), values, alpha=0.6)
    axes.set_xticks(list(range(1, len(series) + 1)), list(series), rotation=20)
    axes.set_ylabel("MiB beyond what containers hold")
    axes.set_title(f"Overhead of {report.handler}", parse_math=False)
    axes.set_ylim(0, _top(series, report))
    if report.proposal is not None:
        memory = report.proposal.memory
        axes.axhspan(memory.lower / MEBIBYTE, memory.upper / MEBIBYTE, alpha=0.15)
        axes.axhline(
            memory.estimate / MEBIBYTE, linestyle="--",
            label=f"percentile {memory.percentile:g}, "
            + counted(report.proposal.containers, "container"),
        )  # fmt: skip
        axes.legend()
    content = io.BytesIO()
    figure.savefig(content, format="png")
    replace_file(path, content.getvalue())


def _series(report: Report) -> Series:
    series = series_of(report.samples)
    if not series:
        raise MeasurementError("nothing can be drawn: no probe pod gave a sample")
    return series


def _top(series: Series, report: Report) -> float:
    most = max(value for values in series.values() for value in values)
    if report.proposal is not None:
        most = max(most, report.proposal.memory.upper / MEBIBYTE)
    return max(1.0, most * 1.1)


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise MeasurementError(f"plots need the library {package}: {_REMEDY}") from error
