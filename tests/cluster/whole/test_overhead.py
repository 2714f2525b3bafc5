"""Measured overhead on real handlers, honest and other, and what an interruption leaves."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from moorage.api.clock import SystemClock
from moorage.api.quantity import parse
from moorage.api.runtime_group import MEASUREMENT_LABEL
from moorage.runtimes.overhead import Measurement, MeasureOptions
from moorage.runtimes.overhead.readings import SummarySource
from moorage.wire.client.config import load_kubeconfig
from moorage.wire.client.rest import Client
from tests.cluster.whole.odd_handlers import LIES_ABOUT_ITS_OUTPUT, breaks_after, odd_class
from tests.forks import Fork
from tests.running import RunningCluster, skip_without_gvisor, until

pytestmark = [pytest.mark.runtime, pytest.mark.slow]

_QUICK = ("--samples", "1", "--settle", "0.2", "--window", "0.4", "--readings", "2")
MI = 1 << 20


def _measure(cluster: RunningCluster, handler: str, *more: str, status: int = 0) -> Any:
    done = cluster.moor(
        "overhead", "measure", handler, *_QUICK, "--parallel", "3", "-o", "json", *more,
        status=status,
    )  # fmt: skip
    return json.loads(done.stdout[: done.stdout.rindex("}") + 1])


def _leftovers(cluster: RunningCluster) -> list[str]:
    kinds = ("pods,runtimeclasses", "-l", MEASUREMENT_LABEL)
    return [
        item["metadata"]["name"]
        for item in cluster.get(*kinds)["items"]
        if "deletionTimestamp" not in item["metadata"]
    ]


@pytest.mark.parametrize("handler", ["runc", "crun"])
def test_the_overhead_of_a_native_handler_is_small_and_grows_by_container(
    whole_cluster: RunningCluster, handler: str
) -> None:
    report = _measure(whole_cluster, handler)
    assert len(report["pods"]) == 6
    assert all(pod["source"] == "cgroup" and pod["error"] == "" for pod in report["pods"])
    proposal = report["proposal"]
    assert MI / 4 < proposal["memory"]["estimate"] < 8 * MI
    assert 0 < proposal["memory_growth"]["per_container"] < 8 * MI
    assert abs(proposal["memory_growth"]["per_payload_mebibyte"]) < MI / 4
    idle = next(pod for pod in report["pods"] if pod["processes"])
    outside = {one["program"] for one in idle["processes"] if not one["is_charged"]}
    assert outside == {"conmon"}
    busy = next(pod for pod in report["pods"] if pod["activity"] == "busy")
    assert busy["cycle_cpu_us"] is None or busy["cycle_cpu_us"] > 0
    assert _leftovers(whole_cluster) == []


def test_the_overhead_of_gvisor_is_its_kernel_and_is_written_as_a_new_class(
    whole_cluster: RunningCluster,
) -> None:
    skip_without_gvisor()
    report = _measure(whole_cluster, "gvisor", "--apply")
    assert report["proposal"]["memory"]["estimate"] > 8 * MI
    charged = {one["program"] for pod in report["pods"] for one in pod["processes"]}
    assert {"runsc-sandbox", "runsc-gofer"} <= charged
    version = whole_cluster.get("runtimeclass", "gvisor-v2")
    try:
        assert version["handler"] == "gvisor"
        declared = version["overhead"]["podFixed"]["memory"]
        assert parse(declared).value >= report["proposal"]["memory"]["estimate"]
        assert "overhead" not in whole_cluster.get("runtimeclass", "gvisor")
        smallest = ("--further-containers", "0", "--payload", "0")
        again = _measure(whole_cluster, "gvisor", "--apply", *smallest)
        names = {one["metadata"]["name"] for one in whole_cluster.get("runtimeclass")["items"]}
        is_same = again["proposal"]["pod_fixed"] == report["proposal"]["pod_fixed"]
        assert ("gvisor-v3" in names) is not is_same
    finally:
        versions = ("gvisor-v2", "gvisor-v3")
        whole_cluster.kubectl("delete", "runtimeclass", *versions, "--ignore-not-found")


async def test_from_elsewhere_the_nodes_statistics_are_read(
    whole_cluster: RunningCluster,
) -> None:
    options = MeasureOptions(
        handler="crun", samples=1, settle_s=0.2, window_s=0.4, readings=2, further_containers=0
    )
    config = load_kubeconfig(whole_cluster.kubeconfig)
    clock = SystemClock()
    async with Client(config, user_agent="test") as client:
        source = SummarySource(client, clock)
        report = await Measurement(client, options, clock, source=source).run()
    assert report.proposal is not None
    assert 0 < report.proposal.memory.estimate < 4 * MI
    assert report.proposal.cpu is None
    assert all(pod.outside_bytes is None for pod in report.pods)


def test_a_handler_that_breaks_half_way_gives_a_report_and_no_class(
    whole_cluster: RunningCluster, tmp_path: Path
) -> None:
    with odd_class(whole_cluster, tmp_path, breaks_after(3, tmp_path)) as name:
        report = _measure(
            whole_cluster, name, "--start-timeout", "6", "--parallel", "1", "--apply",
            "--further-containers", "0", "--payload", "0", "--samples", "2", status=1,
        )  # fmt: skip
        failed = [pod["error"] for pod in report["pods"] if pod["sample"] is None]
        assert len(failed) == 1
        assert "it broke half-way" in failed[0]
        names = {one["metadata"]["name"] for one in whole_cluster.get("runtimeclass")["items"]}
        assert f"{name}-v2" not in names
    assert _leftovers(whole_cluster) == []


def test_a_handler_that_prints_something_else_is_no_sample(
    whole_cluster: RunningCluster, tmp_path: Path
) -> None:
    with odd_class(whole_cluster, tmp_path, LIES_ABOUT_ITS_OUTPUT) as name:
        report = _measure(
            whole_cluster, name, "--further-containers", "0", "--payload", "0", status=1
        )
        assert all("printed 'anything'" in pod["error"] for pod in report["pods"])
        assert report["proposal"] is None


def test_a_handler_that_no_node_has_is_refused_before_any_pod(
    whole_cluster: RunningCluster,
) -> None:
    refused = whole_cluster.moor("overhead", "measure", "absent", status=1)
    assert "there is no handler absent on any node; handlers that nodes report: " in refused.stderr
    assert "crun" in refused.stderr
    assert _leftovers(whole_cluster) == []


def test_an_interrupted_measurement_removes_its_pods_and_class(
    whole_cluster: RunningCluster,
) -> None:
    arguments = ("overhead", "measure", "crun", "--settle", "300", "--parallel", "4")
    process = Fork(
        ["moorage.cli", *arguments, "--data-dir", str(whole_cluster.data_dir)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        until(lambda: len(_leftovers(whole_cluster)) >= 5, "four pods and the class")
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert process.returncode != 0, output
    assert "Traceback" not in output
    assert _leftovers(whole_cluster) == []
