from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest

from moorage.api.pods import Pod
from moorage.linux.trees import disk_use
from moorage.node.garbage.storage import StorageMeter
from moorage.node.garbage.usage import StorageUsage, UsageWatch, exceeded_limit
from moorage.node.metrics import Metrics
from moorage.node.paths import NodePaths
from moorage.node.pod_facts.labels import POD_UID
from moorage.node.runtime.views import PodView
from moorage.node.status.inputs import TerminationReason
from moorage.wire.cri import CriError, pb
from tests.nesting import nest
from tests.node.objects import UID, Wire, a_pod, a_sandbox, a_view, engine_has, wire_container

MIB = 1024 * 1024
VOLUMES: list[Wire] = [
    {"name": "v", "emptyDir": {"sizeLimit": "1Mi"}},
    {"name": "w", "emptyDir": {}},
    {"name": "tmpfs", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
]


def limited(name: str, limit: str) -> Wire:
    return wire_container(name=name, resources={"limits": {"ephemeral-storage": limit}})


def test_files_are_counted_once_whatever_their_names(tmp_path: Path) -> None:
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir/one").write_bytes(b"x" * 8192)
    before = disk_use([tmp_path]).size_bytes
    os.link(tmp_path / "dir/one", tmp_path / "two")
    (tmp_path / "link").symlink_to("/dev/zero")
    assert before >= 8192
    assert disk_use([tmp_path]).size_bytes - before < 4097
    assert disk_use([tmp_path / "gone"]).size_bytes == 0


@pytest.mark.parametrize(
    ("pod", "usage", "signal", "message"),
    [
        (
            a_pod(volumes=VOLUMES),
            StorageUsage({"v": MIB + 1, "w": 0}),
            "emptydirfs.limit",
            'Usage of EmptyDir volume "v" exceeds the limit "1Mi". ',
        ),
        (
            a_pod(limited("a", "1Mi"), limited("b", "2Mi"), volumes=VOLUMES),
            StorageUsage({"v": MIB, "w": MIB}, {"a": MIB, "b": 1}),
            "ephemeralpodfs.limit",
            "Pod ephemeral local storage usage exceeds the total limit of containers 3Mi. ",
        ),
        (
            a_pod(limited("a", "1Mi"), limited("b", "2Mi")),
            StorageUsage({}, {"a": MIB + 1, "b": 0}),
            "ephemeralcontainerfs.limit",
            'Container a exceeded its local ephemeral storage limit "1Mi". ',
        ),
        (
            a_pod(limited("a", "4Mi"), limited("b", "1Mi")),
            StorageUsage({}, {"a": MIB, "b": MIB + 1}),
            "ephemeralcontainerfs.limit",
            'Container b exceeded its local ephemeral storage limit "1Mi". ',
        ),
        (
            a_pod(limited("a", "1Mi")),
            StorageUsage({}, {"a": MIB // 2}, files={"/etc/hosts": MIB}),
            "ephemeralpodfs.limit",
            "Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. ",
        ),
        (
            a_pod(),
            StorageUsage(messages={"app": 10 * MIB + 1}),
            "podfile.limit",
            'Termination log of container app exceeds the limit "10Mi". ',
        ),
        (
            a_pod(),
            StorageUsage(files={"/etc/hostname": 1, "/etc/resolv.conf": 10 * MIB + 1}),
            "podfile.limit",
            'Usage of file "/etc/resolv.conf" of the pod exceeds the limit "10Mi". ',
        ),
    ],
)
def test_a_pod_exceeds_the_limit_that_upstream_names_first(
    pod: Pod, usage: StorageUsage, signal: str, message: str
) -> None:
    exceeded = exceeded_limit(pod, usage)
    assert exceeded is not None
    assert (exceeded.signal, exceeded.message) == (signal, message)


@pytest.mark.parametrize(
    ("pod", "usage"),
    [
        (a_pod(volumes=VOLUMES), StorageUsage({"v": MIB, "w": 9 * MIB})),
        (a_pod(limited("a", "1Mi"), limited("b", "1Mi")), StorageUsage({}, {"a": MIB, "b": MIB})),
        (a_pod(), StorageUsage({}, {"main": 9 * MIB})),
        (
            a_pod(),
            StorageUsage({}, {"app": 99 * MIB}, {"app": 10 * MIB}, {"/etc/hosts": 10 * MIB}),
        ),
    ],
)
def test_a_pod_at_its_limit_does_not_exceed_it(pod: Pod, usage: StorageUsage) -> None:
    assert exceeded_limit(pod, usage) is None


class FakeWorker:
    def __init__(self, pod: Pod) -> None:
        self.pod, self.uid, self.is_active = pod, UID, True
        self.terminations: list[TerminationReason] = []

    def evict(self, termination: TerminationReason) -> bool:
        self.terminations.append(termination)
        return len(self.terminations) == 1


class FakeEngine:
    """Container statistics, or a failure to read them, and the mounts of its own."""

    def __init__(
        self,
        *stats: pb.ContainerStats,
        fails: bool = False,
        files: Mapping[str, Path] | None = None,
    ) -> None:
        self._stats, self._fails, self._files = stats, fails, files or {}
        self.asked: list[str] = []

    async def verbose_container_status(self, container_id: str) -> pb.ContainerStatusResponse:
        if self._fails:
            raise CriError("ContainerStatus", grpc.StatusCode.UNAVAILABLE, "gone")
        self.asked.append(container_id)
        mounts = [
            {"destination": f"/etc/{name}", "source": str(path), "type": "bind", "options": ["rw"]}
            for name, path in self._files.items()
        ]
        info = json.dumps({"runtimeSpec": {"mounts": mounts}})
        return pb.ContainerStatusResponse(info={"info": info})

    async def container_stats(self) -> Sequence[pb.ContainerStats]:
        if self._fails:
            raise CriError("ListContainerStats", grpc.StatusCode.UNAVAILABLE, "gone")
        return self._stats


class FakeObserver:
    """What runs: one container of the pod."""

    pods = (a_view(a_sandbox(), engine_has("a")),)

    def view(self, uid: str) -> PodView:
        return self.pods[0] if uid == UID else PodView(uid)


def writable_layer(uid: str, container: str, used_bytes: int) -> pb.ContainerStats:
    stats = pb.ContainerStats()
    stats.attributes.labels[POD_UID] = uid
    stats.attributes.metadata.name = container
    stats.writable_layer.used_bytes.value = used_bytes
    return stats


def watch_of(
    root: Path, *workers: FakeWorker, engine: FakeEngine | None = None
) -> tuple[UsageWatch, Metrics]:
    metrics = Metrics()
    observer: Any = FakeObserver()
    meter = StorageMeter(
        engine or FakeEngine(),  # type: ignore[arg-type]
        observer,
        NodePaths(root, root / "logs"),
    )
    watch = UsageWatch(
        lambda: workers,  # type: ignore[arg-type, return-value]
        meter,
        observer,
        metrics,
    )
    return watch, metrics


def watching(root: Path, **source: Any) -> tuple[UsageWatch, FakeWorker, Metrics]:
    volume: Wire = {"name": "v", "emptyDir": source}
    worker = FakeWorker(a_pod(volumes=[volume]))
    place = NodePaths(root, root / "logs").pod(UID).volume("empty-dir", "v")
    place.mkdir(parents=True)
    (place / "data").write_bytes(b"x" * 8192)
    watch, metrics = watch_of(root, worker)
    return watch, worker, metrics


async def test_writable_layer_and_logs_of_a_container_count_together(tmp_path: Path) -> None:
    worker = FakeWorker(a_pod(limited("a", "1Mi"), limited("b", "8Mi")))
    meta = worker.pod.metadata
    logs = NodePaths(tmp_path, tmp_path / "logs").pod_logs(meta.namespace, meta.name, UID) / "a"
    logs.mkdir(parents=True)
    (logs / "0.log").write_bytes(b"x" * 8192)
    engine = FakeEngine(
        writable_layer("another-pod", "a", 9 * MIB),
        writable_layer(UID, "b", MIB),
        writable_layer(UID, "a", MIB - 4096),
    )
    watch, metrics = watch_of(tmp_path, worker, engine=engine)
    await watch.check()
    assert [termination.message for termination in worker.terminations] == [
        'Container a exceeded its local ephemeral storage limit "1Mi". '
    ]
    assert metrics.evictions.value(eviction_signal="ephemeralcontainerfs.limit") == 1


async def test_volumes_are_measured_while_the_engine_does_not_answer(tmp_path: Path) -> None:
    volume: Wire = {"name": "v", "emptyDir": {"sizeLimit": "1Ki"}}
    worker = FakeWorker(a_pod(limited("a", "1Mi"), volumes=[volume]))
    place = NodePaths(tmp_path, tmp_path / "logs").pod(UID).volume("empty-dir", "v")
    place.mkdir(parents=True)
    (place / "data").write_bytes(b"x" * 8192)
    watch, _ = watch_of(tmp_path, worker, engine=FakeEngine(fails=True))
    await watch.check()
    assert 'EmptyDir volume "v"' in worker.terminations[0].message


async def test_a_pod_that_fills_its_volume_is_evicted_once(tmp_path: Path) -> None:
    watch, worker, metrics = watching(tmp_path, sizeLimit="1Ki")
    for _ in range(2):
        await watch.check()
    message = 'Usage of EmptyDir volume "v" exceeds the limit "1Ki". '
    assert worker.terminations[0] == TerminationReason("Evicted", message)
    assert metrics.evictions.value(eviction_signal="emptydirfs.limit") == 1


@pytest.mark.parametrize(
    "source", [{}, {"sizeLimit": "1Gi"}, {"sizeLimit": "1Ki", "medium": "Memory"}]
)
async def test_others_are_left_alone(tmp_path: Path, source: Any) -> None:
    watch, worker, _ = watching(tmp_path, **source)
    await watch.check()
    assert worker.terminations == []


@pytest.mark.slow
@pytest.mark.usefixtures("removed_by_us")
async def test_a_volume_of_any_depth_is_measured(tmp_path: Path) -> None:
    watch, worker, _ = watching(tmp_path, sizeLimit="1Mi")
    nest(NodePaths(tmp_path, tmp_path).pod(UID).volume("empty-dir", "v") / "deep", 3000)
    await watch.check()
    assert [termination.reason for termination in worker.terminations] == ["Evicted"]


async def test_unmeasurable_volume_does_not_prevent_the_others(tmp_path: Path) -> None:
    _, worker, _ = watching(tmp_path, sizeLimit="1Ki")
    broken = FakeWorker(a_pod(volumes=[{"name": "v", "emptyDir": {"sizeLimit": "no size"}}]))
    watch, _ = watch_of(tmp_path, broken, worker)
    await watch.check()
    assert worker.terminations


@pytest.mark.parametrize(
    "place",
    ["termination log", "hosts", "resolv.conf", "hostname", "log of a debug container"],
)
async def test_every_file_that_a_container_may_write_counts(tmp_path: Path, place: str) -> None:
    debugger: Wire = wire_container(name="debug")
    pod = a_pod(limited("a", "64Ki"), ephemeralContainers=[debugger])
    paths = NodePaths(tmp_path, tmp_path / "logs")
    meta = pod.metadata
    files = {
        "termination log": paths.pod(UID).container("a") / "1234",
        "hosts": paths.pod(UID).hosts_file,
        "resolv.conf": tmp_path / "sandbox" / "resolv.conf",
        "hostname": tmp_path / "sandbox" / "hostname",
        "log of a debug container": paths.pod_logs(meta.namespace, meta.name, UID) / "debug/0.log",
    }
    for file in files.values():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("small")
    engine = FakeEngine(files={name: files[name] for name in ("resolv.conf", "hostname")})
    worker = FakeWorker(pod)
    watch, metrics = watch_of(tmp_path, worker, engine=engine)
    await watch.check()
    assert worker.terminations == []
    files[place].write_bytes(b"x" * 65536)
    await watch.check()
    assert [termination.reason for termination in worker.terminations] == ["Evicted"]
    assert engine.asked == ["a-0"]
    signals = ("ephemeralpodfs.limit", "ephemeralcontainerfs.limit")
    assert sum(metrics.evictions.value(eviction_signal=signal) for signal in signals) == 1


async def test_a_single_file_is_bounded_without_a_limit(tmp_path: Path) -> None:
    worker = FakeWorker(a_pod(wire_container(name="a")))
    file = NodePaths(tmp_path, tmp_path).pod(UID).container("a") / "1234"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"x" * (10 * MIB))
    watch, metrics = watch_of(tmp_path, worker)
    await watch.check()
    assert worker.terminations == []
    with file.open("ab") as more:
        more.write(b"x" * 8192)
    await watch.check()
    assert metrics.evictions.value(eviction_signal="podfile.limit") == 1
    assert "Termination log of container a" in worker.terminations[0].message
