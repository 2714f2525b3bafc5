from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from moorage.api.clock import parse_time
from moorage.linux.cgroups import Cgroups, Layout
from moorage.node.cgroups.tree import CgroupTree
from moorage.node.cgroups.values import pod_directory
from moorage.node.options import NodeOptions
from moorage.node.pod_facts.labels import POD_UID
from moorage.node.runtime.views import pod_view
from moorage.node.server.statistics import Rates, Statistics, resource_text
from moorage.wire.cri import pb
from tests import cgroup_trees
from tests.clocks import START_NS, FakeClock
from tests.node.objects import a_pod, a_sandbox, engine_has, exited

SECOND = 1_000_000_000


def test_use_per_second_is_worked_out_from_two_readings() -> None:
    rates = Rates()
    assert rates.rate("c", 0, 0) is None
    assert rates.rate("c", 2 * SECOND, SECOND) == SECOND // 2
    # Too close to the last for a figure of its own.
    assert rates.rate("c", 2 * SECOND + 1, 9 * SECOND) == SECOND // 2
    # A total that went back is another container's, or the engine's fault: never negative.
    assert rates.rate("c", 4 * SECOND, 0) == 0
    rates.keep(set())
    assert rates.rate("c", 5 * SECOND, SECOND) is None


def test_the_form_that_metrics_server_reads() -> None:
    use = {"cpu": {"usageCoreNanoSeconds": SECOND}, "memory": {"workingSetBytes": 7}}
    pod = {"podRef": {"name": "web", "namespace": "shop"}, "containers": [{"name": "app"} | use]}
    lines = resource_text({"node": use, "pods": [pod | use]}).splitlines()
    assert [line for line in lines if not line.startswith("#")] == [
        'container_cpu_usage_seconds_total{container="app",namespace="shop",pod="web"} 1',
        'container_memory_working_set_bytes{container="app",namespace="shop",pod="web"} 7',
        "node_cpu_usage_seconds_total 1",
        "node_memory_working_set_bytes 7",
        'pod_cpu_usage_seconds_total{namespace="shop",pod="web"} 1',
        'pod_memory_working_set_bytes{namespace="shop",pod="web"} 7',
        "resource_scrape_error 0",
    ]
    types = dict(line.split()[2:] for line in lines if line.startswith("# TYPE "))
    assert types == {
        name: "counter" if name.endswith("_total") else "gauge"
        for name in (line.partition("{")[0].partition(" ")[0] for line in lines if line[0] != "#")
    }


def test_metrics_keep_every_digit() -> None:
    use = {
        "cpu": {"usageCoreNanoSeconds": 1_234_567 * SECOND + SECOND // 8},
        "memory": {"workingSetBytes": 8_123_456_789},
    }
    text = resource_text({"node": use, "pods": []})
    assert "node_cpu_usage_seconds_total 1234567.125\n" in text
    assert "node_memory_working_set_bytes 8123456789\n" in text


def test_pods_of_other_clusters_on_the_engine_are_not_counted() -> None:
    pods = [
        pod_view("a", [a_sandbox(uid="a", owner="c1_n1")], [engine_has(uid="a")]),
        pod_view("b", [a_sandbox(uid="b", owner="n1")], [exited(uid="b")]),
        pod_view("c", [a_sandbox(uid="c", owner="c2_n1")], [engine_has(uid="c")]),
    ]
    context: Any = SimpleNamespace(
        options=NodeOptions(name="n1", cluster_id="c1"), observer=SimpleNamespace(pods=pods)
    )
    pod_manager: Any = None
    count, states = Statistics(context, pod_manager).running()
    assert (count, states["running"], states["exited"]) == (2, 1, 1)


def _usage(total_ns: int, at_ns: int, **more: Any) -> pb.ContainerStats:
    return pb.ContainerStats(
        attributes=pb.ContainerAttributes(
            id=more.pop("id", "c1"),
            metadata=pb.ContainerMetadata(name=more.pop("name", "app")),
            labels={POD_UID: more.pop("uid", "u1")},
        ),
        cpu=pb.CpuUsage(
            timestamp=at_ns, usage_core_nano_seconds=pb.UInt64Value(value=total_ns),
            **more.pop("cpu", {}),
        ),
        memory=pb.MemoryUsage(
            timestamp=at_ns, working_set_bytes=pb.UInt64Value(value=7),
            usage_bytes=pb.UInt64Value(value=9), rss_bytes=pb.UInt64Value(value=5),
            page_faults=pb.UInt64Value(value=3), major_page_faults=pb.UInt64Value(value=2),
            available_bytes=pb.UInt64Value(value=1),
        ),
        **more,
    )  # fmt: skip


class FakeFigures:
    """An engine with the figures of one moment."""

    def __init__(self) -> None:
        self.containers: list[pb.ContainerStats] = []
        self.sandboxes: list[pb.PodSandboxStats] = []

    async def container_stats(self) -> list[pb.ContainerStats]:
        return self.containers

    async def sandbox_stats(self) -> list[pb.PodSandboxStats]:
        return self.sandboxes


def _statistics(
    figures: FakeFigures, clock: FakeClock, root: Path, cgroups: Cgroups | None = None
) -> Statistics:
    created = "2026-01-01T00:00:00Z"
    pods = [a_pod(meta={"uid": uid, "creationTimestamp": created}) for uid in ("u1", "u2")]
    workers = [
        SimpleNamespace(uid="u1", pod=pods[0], is_active=True),
        SimpleNamespace(uid="u2", pod=pods[1], is_active=False),
    ]
    context: Any = SimpleNamespace(
        options=NodeOptions(name="n1", root_dir=root),
        engine=figures,
        clock=clock,
        cgroups=CgroupTree(cgroups or Cgroups(Layout.ABSENT), "/moorage"),
    )
    pod_manager: Any = workers
    return Statistics(context, pod_manager)


async def test_a_summary_has_each_active_pod_with_its_containers(tmp_path: Path) -> None:
    figures, clock = FakeFigures(), FakeClock()
    layer = pb.FilesystemUsage(timestamp=START_NS, used_bytes=pb.UInt64Value(value=11),
                               inodes_used=pb.UInt64Value(value=4))  # fmt: skip
    exact = {"usage_nano_cores": pb.UInt64Value(value=50)}
    figures.containers = [
        _usage(SECOND, START_NS, writable_layer=layer, cpu=exact),
        _usage(3 * SECOND, START_NS, id="c2", name="side"),
        _usage(SECOND, START_NS, id="c3", uid="u2"),
    ]
    interface = pb.NetworkInterfaceUsage(
        name="eth0", rx_bytes=pb.UInt64Value(value=1), rx_errors=pb.UInt64Value(value=2),
        tx_bytes=pb.UInt64Value(value=3), tx_errors=pb.UInt64Value(value=4),
    )  # fmt: skip
    other = pb.NetworkInterfaceUsage(name="eth1", rx_bytes=pb.UInt64Value(value=5))
    figures.sandboxes = [
        pb.PodSandboxStats(
            attributes=pb.PodSandboxAttributes(
                id="s1", metadata=pb.PodSandboxMetadata(uid="u1")
            ),
            linux=pb.LinuxPodSandboxStats(
                network=pb.NetworkUsage(timestamp=START_NS, default_interface=interface,
                                        interfaces=[other]),
                process=pb.ProcessUsage(process_count=pb.UInt64Value(value=6)),
            ),
        )
    ]  # fmt: skip
    statistics = _statistics(figures, clock, tmp_path)
    summary = await statistics.summary()
    (pod,) = summary["pods"]
    assert pod["podRef"] == {"name": "web", "namespace": "shop", "uid": "u1"}
    assert pod["startTime"] == "2026-01-01T00:00:00Z"
    stamp = "2026-01-01T00:00:00Z"
    memory = {"time": stamp, "workingSetBytes": 7, "availableBytes": 1, "usageBytes": 9,
              "rssBytes": 5, "pageFaults": 3, "majorPageFaults": 2}  # fmt: skip
    first, second = pod["containers"]
    assert first == {
        "name": "app",
        "cpu": {"time": stamp, "usageNanoCores": 50, "usageCoreNanoSeconds": SECOND},
        "memory": memory,
        "rootfs": {"time": stamp, "usedBytes": 11, "inodesUsed": 4},
    }
    assert second == {
        "name": "side", "cpu": {"time": stamp, "usageCoreNanoSeconds": 3 * SECOND},
        "memory": memory,
    }  # fmt: skip
    assert pod["cpu"] == {"time": stamp, "usageNanoCores": 50, "usageCoreNanoSeconds": 4 * SECOND}
    assert pod["memory"] == {"time": stamp, "workingSetBytes": 14, "usageBytes": 18, "rssBytes": 10}
    shown = {"name": "eth0", "rxBytes": 1, "rxErrors": 2, "txBytes": 3, "txErrors": 4}
    more = {"name": "eth1", "rxBytes": 5, "rxErrors": 0, "txBytes": 0, "txErrors": 0}
    assert pod["network"] == {"time": stamp, **shown, "interfaces": [shown, more]}
    assert pod["process_stats"] == {"process_count": 6}
    # The second reading has a rate of its own for what the engine gave none.
    figures.containers = [_usage(5 * SECOND, START_NS + 4 * SECOND, id="c2", name="side")]
    figures.sandboxes = []
    (pod,) = (await statistics.summary())["pods"]
    assert pod["containers"][0]["cpu"]["usageNanoCores"] == SECOND // 2
    assert not {"network", "process_stats"} & pod.keys()
    # A container that was not there in between starts again.
    figures.containers = []
    await statistics.summary()
    figures.containers = [_usage(9 * SECOND, START_NS + 8 * SECOND, id="c2")]
    (pod,) = (await statistics.summary())["pods"]
    assert "usageNanoCores" not in pod["containers"][0]["cpu"]


def _uptime_s() -> float:
    return float(Path("/proc/uptime").read_text().split()[0])


async def test_the_nodes_own_figures_are_the_machines(tmp_path: Path) -> None:
    clock = FakeClock()
    statistics = _statistics(FakeFigures(), clock, tmp_path)
    node = (await statistics.summary())["node"]
    assert node["nodeName"] == "n1"
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    memory = node["memory"]
    assert 0 < memory["workingSetBytes"] < total
    assert abs(memory["workingSetBytes"] + memory["availableBytes"] - total) < total * 0.01
    assert memory["usageBytes"] < total
    assert 0 < memory["rssBytes"] < total
    disk = os.statvfs(tmp_path)
    assert node["fs"]["capacityBytes"] == disk.f_blocks * disk.f_frsize
    assert node["fs"]["inodes"] == disk.f_files
    assert (
        0 <= node["fs"]["usedBytes"] <= node["fs"]["capacityBytes"] - node["fs"]["availableBytes"]
    )
    assert node["fs"]["inodesUsed"] + node["fs"]["inodesFree"] == node["fs"]["inodes"]
    assert "usageNanoCores" not in node["cpu"]
    assert node["cpu"]["usageCoreNanoSeconds"] > 0
    uptime_s = _uptime_s()
    started = parse_time(node["startTime"]).timestamp()
    assert abs(clock.now().timestamp() - uptime_s - started) < 60
    text = await statistics.resource_metrics()
    assert "node_memory_working_set_bytes " in text


_V1_FILES = {
    "cpuacct": {"cpuacct.usage": f"{5 * SECOND}\n"},
    "memory": {
        "memory.usage_in_bytes": "900\n",
        "memory.stat": "cache 1\ntotal_inactive_file 250\n",
    },
}
_V2_FILES = {
    "cpu.stat": "usage_usec 5000000\nuser_usec 1\n",
    "memory.current": "900\n",
    "memory.stat": "anon 4\ninactive_file 250\n",
}


def _cgroups(root: Path, layout: Layout) -> Cgroups:
    """The cgroup of pod u1 with its figures."""
    path = f"moorage/{pod_directory(a_pod(meta={'uid': 'u1'}))}"
    root.mkdir()
    if layout is Layout.V2:
        cgroup_trees.write(root / path, _V2_FILES)
        return cgroup_trees.v2(root)
    cgroups = cgroup_trees.v1(root)
    for controller, files in _V1_FILES.items():
        cgroup_trees.write(root / controller / path, files)
    return cgroups


@pytest.mark.parametrize("layout", [Layout.V1, Layout.V2])
async def test_a_pod_uses_what_its_cgroup_uses_the_runtime_included(
    tmp_path: Path, layout: Layout
) -> None:
    figures, clock = FakeFigures(), FakeClock()
    figures.containers = [_usage(SECOND, START_NS)]
    statistics = _statistics(figures, clock, tmp_path, _cgroups(tmp_path / "cgroup", layout))
    (pod,) = (await statistics.summary())["pods"]
    assert pod["cpu"] == {"time": "2026-01-01T00:00:00Z", "usageCoreNanoSeconds": 5 * SECOND}
    assert pod["memory"] == {
        "time": "2026-01-01T00:00:00Z", "workingSetBytes": 650, "usageBytes": 900, "rssBytes": 5,
    }  # fmt: skip
    assert pod["containers"][0]["cpu"]["usageCoreNanoSeconds"] == SECOND
    clock.advance(2)
    (pod,) = (await statistics.summary())["pods"]
    assert pod["cpu"]["usageNanoCores"] == 0


async def test_a_cgroup_that_is_gone_leaves_the_containers_figures(tmp_path: Path) -> None:
    figures = FakeFigures()
    figures.containers = [_usage(SECOND, START_NS)]
    (tmp_path / "cgroup").mkdir()
    cgroups = cgroup_trees.v1(tmp_path / "cgroup")
    (pod,) = (await _statistics(figures, FakeClock(), tmp_path, cgroups).summary())["pods"]
    assert pod["cpu"]["usageCoreNanoSeconds"] == SECOND
