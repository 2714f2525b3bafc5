"""Plots of a report: in the terminal by plotext, as a PNG by matplotlib.

Both belong to the extra `moorage[plots]` and are imported when a plot is drawn.
"""

from __future__ import annotations

import importlib
import io
from collections import defaultdict
from pathlib import Path
from typing import Any

from moorage.api.counted import counted
from moorage.linux.atomic_file import replace_file
from moorage.runtimeclass.overhead_estimates import MEBIBYTE, OverheadSample
from moorage.runtimes.overhead.errors import MeasurementError
from moorage.runtimes.overhead.report import Report

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
