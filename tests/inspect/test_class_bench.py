"""Bench of classes: what workloads print, and the summary of samples."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.inspect.class_bench import (
    ClassSummary,
    Failure,
    Measurements,
    Sample,
    summarize,
    table_columns,
)
from moorage.inspect.class_workloads import METRICS, Reading, readings, throughput_script


def test_the_lines_of_a_workload_are_values_in_the_units_of_the_metrics() -> None:
    output = (
        "sample syscalls 2000 50\n"
        "noise\n"
        "sample write 64 200\n"
        "sample files 100 0\n"
        "failed network wget: short read\n"
        "failed network\n"
    )
    assert list(readings(output)) == [
        Reading("syscalls", 8000.0),
        Reading("write", 2.0),
        # Less than a tick counts as one.
        Reading("files", 20000.0),
        Reading("network", None, "wget: short read"),
        Reading("network", None, "failed"),
    ]


@pytest.mark.parametrize(
    "line",
    ["", "sample", "sample syscalls", "sample syscalls 1", "sample syscalls 1 -1",
     "sample syscalls ² 1", "sample unknown 1 1", "sample write 1 1 1", "failed",
     "sample syscalls 9999999999999 1"],
)  # fmt: skip
def test_lines_of_another_form_are_skipped(line: str) -> None:
    assert list(readings(line)) == []


@given(st.text())
def test_any_output_can_be_read(output: str) -> None:
    for reading in readings(output):
        assert reading.value is None or reading.value >= 0


def test_the_summary_has_medians_failures_and_what_a_class_uses_more_than_the_least() -> None:
    measured = Measurements(
        samples=(
            *(Sample("crun", "start", value) for value in (90, 10, 50)),
            Sample("crun", "phase:sandbox", 5),
            Sample("crun", "memory", 0.25),
            Sample("gvisor", "memory", 24),
        ),
        failures=(Failure("gvisor", "network", "wget failed"), Failure("gvisor", "start", "x")),
    )
    summaries = summarize(("crun", "gvisor", "kata"), measured)
    assert summaries == [
        ClassSummary("crun", {"start": 50, "memory": 0.25, "overhead": 0.0}, 0),
        ClassSummary("gvisor", {"memory": 24, "overhead": 23.75}, 2),
        ClassSummary("kata", {}, 0),
    ]
    assert table_columns(summaries) == ["start", "memory", "overhead"]
    assert table_columns([]) == []


def test_each_metric_has_a_name_of_its_own() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)


def test_the_throughput_program_runs_in_a_busybox() -> None:
    busybox = shutil.which("busybox")
    if busybox is None:
        pytest.skip("busybox is not installed")
    script = throughput_script("")
    # As much work as takes no time, and none of the host's /tmp.
    for step, small in (("2000 8192000", "10 10"), ("50 51200", "2 2"), ("16 4096", "1 1")):
        assert step in script
        script = script.replace(step, small)
    done = subprocess.run(
        ["unshare", "--mount", busybox, "sh", "-c", f"mount -t tmpfs t /tmp && {{\n{script}}}"],
        capture_output=True, text=True, check=False, timeout=30,
    )  # fmt: skip
    if "Operation not permitted" in done.stderr:
        pytest.skip("a mount namespace needs root")
    assert [reading.metric for reading in readings(done.stdout)] == ["syscalls", "files", "write"]
    assert all(reading.value for reading in readings(done.stdout))
