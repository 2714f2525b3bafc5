"""Side by side: one command under several classes, and how the results differ.

`compare` is pure: what one class allows and another refuses is the point of `moor run`.
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from moorage.inspect.trials import Trial, TrialResult, Trials
from moorage.wire.client.rest import Client

KIND = "moor-run"
_MOST_LINES = 40
_LONGEST_LINE = 200


@dataclass(frozen=True, slots=True)
class Difference:
    """How the result of a class differs from that of the first one.

    `lines` is a unified diff of the outputs, cut to 40 lines; empty if they are the same.
    """

    runtime_class: str
    baseline: str
    what: str
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Comparison:
    """The results in the order of the classes, and the differences."""

    results: tuple[TrialResult, ...]
    differences: tuple[Difference, ...]


async def run_side_by_side(
    client: Client,
    namespace: str,
    trial: Trial,
    classes: Iterable[str],
    *,
    is_parallel: bool = False,
    keeps_pods: bool = False,
) -> Comparison:
    """Run a trial under each class, one after the other unless `is_parallel`, and compare.

    One after the other, no class is measured while another one works. Raises StatusError if pods
    may not be listed, UnreachableError without an API server. Cancelling removes the pods.
    """
    wanted = [replace(trial, runtime_class=name) for name in classes]
    async with Trials(client, namespace, kind=KIND) as trials:
        trials.keeps_pods = keeps_pods
        if is_parallel:
            results = list(await asyncio.gather(*(trials.run(one) for one in wanted)))
        else:
            results = [await trials.run(one) for one in wanted]
    return compare(results)


def compare(results: Sequence[TrialResult]) -> Comparison:
    """Compare results with the first one that ran; without one, with the first. Pure."""
    baseline = next((result for result in results if result.exit_code is not None), None)
    if baseline is None:
        return Comparison(tuple(results), ())
    differences = (_difference(baseline, result) for result in results if result is not baseline)
    return Comparison(tuple(results), tuple(one for one in differences if one is not None))


def _difference(baseline: TrialResult, result: TrialResult) -> Difference | None:
    words = []
    if result.outcome != baseline.outcome:
        words.append(f"{result.outcome}, not {baseline.outcome}")
    if result.exit_code != baseline.exit_code and result.exit_code is not None:
        words.append(f"exit code {result.exit_code}, not {baseline.exit_code}")
    lines: tuple[str, ...] = ()
    if result.exit_code is not None and result.output != baseline.output:
        lines = _diff(baseline, result)
        words.append("another output")
    if not words:
        return None
    return Difference(result.runtime_class, baseline.runtime_class, ", ".join(words), lines)


def _diff(baseline: TrialResult, result: TrialResult) -> tuple[str, ...]:
    """Return a unified diff of two outputs, without what a terminal would act upon."""
    # Comparing takes the square of the lines.
    before, after = (
        [_plain(line) for line in one.output.splitlines()[: 10 * _MOST_LINES]]
        for one in (baseline, result)
    )
    lines = list(
        difflib.unified_diff(
            before, after, baseline.runtime_class, result.runtime_class, lineterm="", n=1
        )
    )
    if len(lines) > _MOST_LINES:
        lines = [*lines[:_MOST_LINES], f"… {len(lines) - _MOST_LINES} more lines"]
    return tuple(lines)


def _plain(line: str) -> str:
    shown = "".join(char if char.isprintable() or char == "\t" else "�" for char in line)
    return shown if len(shown) <= _LONGEST_LINE else shown[: _LONGEST_LINE - 1] + "…"
