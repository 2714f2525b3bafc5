"""Plots: drawn by kept libraries, or refused with the remedy."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from moorage.runtimeclass.overhead_estimates import MEBIBYTE, Activity, OverheadSample, propose
from moorage.runtimes.overhead import MeasurementError, MeasureOptions, Report
from moorage.runtimes.overhead.report import ProbePod, lines, series_of, terminal_plot, write_png


def sample(mebibytes: int, containers: int = 1, payload: int = 0) -> OverheadSample:
    return OverheadSample(
        containers=containers,
        payload_bytes=payload * MEBIBYTE,
        activity=Activity.IDLE,
        memory_bytes=mebibytes * MEBIBYTE,
        cpu_milli=1.5,
    )


def report(*samples: OverheadSample) -> Report:
    pods = [
        ProbePod(
            name=f"p{number}", node="n1", containers=one.containers,
            payload_bytes=one.payload_bytes, activity=one.activity, sample=one,
        )
        for number, one in enumerate(samples)
    ]  # fmt: skip
    return Report(
        handler="h$1",
        runtime_class="box",
        declared={"memory": "8Mi"},
        measured_at="2026-01-01T00:00:00Z",
        options=MeasureOptions(handler="h$1"),
        pods=tuple(pods),
        proposal=propose(samples) if samples else None,
    )


SAMPLES = (sample(20), sample(22), sample(30, 2), sample(21, 1, 16))


def test_series_are_by_shape_and_activity() -> None:
    assert series_of(SAMPLES) == {
        "1c + 16 MiB idle": [21], "1c idle": [20, 22], "2c idle": [30],
    }  # fmt: skip


def test_a_terminal_plot_shows_each_series_without_colour() -> None:
    pytest.importorskip("plotext")
    text = terminal_plot(report(*SAMPLES))
    assert "Overhead of h$1, MiB" in text
    assert "2c idle" in text
    assert "\x1b" not in text


def test_a_png_is_written(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    write_png(report(*SAMPLES), tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG\r\n")
    assert [entry.name for entry in tmp_path.iterdir()] == ["plot.png"]


def test_without_the_library_the_error_has_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str, *_: Any) -> Any:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(importlib, "import_module", absent)
    for draw in (terminal_plot, lambda drawn: write_png(drawn, tmp_path / "plot.png")):
        with pytest.raises(MeasurementError, match=r"pip install 'moorage\[plots\]'"):
            draw(report(*SAMPLES))
    assert not list(tmp_path.iterdir())


def test_nothing_is_drawn_of_nothing(tmp_path: Path) -> None:
    with pytest.raises(MeasurementError, match="nothing can be drawn"):
        terminal_plot(report())
    with pytest.raises(MeasurementError, match="nothing can be drawn"):
        write_png(report(), tmp_path / "plot.png")


def test_a_report_says_what_was_measured_and_what_cannot_be_seen() -> None:
    text = "\n".join(lines(report(*SAMPLES)))
    assert "declared   memory 8Mi" in text
    assert "proposed   cpu 2m, memory 22Mi" in text
    assert "cannot be seen from here" in text


def test_plot_libraries_are_not_imported_before_a_plot_is_drawn() -> None:
    program = (
        "import sys, moorage.cli.commands.overhead; "
        "print([one for one in ('matplotlib', 'plotext', 'numpy') if one in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr
