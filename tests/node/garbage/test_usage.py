from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from moorage.api.pods import Pod
from moorage.node.garbage.usage import UsageWatch, disk_use_bytes
from moorage.node.metrics import Metrics
from moorage.node.paths import NodePaths
from moorage.node.status.knowledge import Ending
from tests.clocks import FakeClock
from tests.node.objects import UID, Wire, a_pod


def test_files_are_counted_once_whatever_their_names(tmp_path: Path) -> None:
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir/one").write_bytes(b"x" * 8192)
    before = disk_use_bytes(tmp_path)
    os.link(tmp_path / "dir/one", tmp_path / "two")
    (tmp_path / "link").symlink_to("/dev/zero")
    assert before >= 8192
    assert disk_use_bytes(tmp_path) - before < 4097
    assert disk_use_bytes(tmp_path / "gone") == 0


class FakeWorker:
    def __init__(self, pod: Pod) -> None:
        self.pod, self.uid, self.is_active = pod, UID, True
        self.endings: list[Ending] = []

    def evict(self, ending: Ending) -> bool:
        self.endings.append(ending)
        return len(self.endings) == 1


def watching(root: Path, **source: Any) -> tuple[UsageWatch, FakeWorker, Metrics]:
    volume: Wire = {"name": "v", "emptyDir": source}
    worker, metrics = FakeWorker(a_pod(volumes=[volume])), Metrics()
    paths = NodePaths(root, root / "logs")
    place = paths.pod(UID).volume("empty-dir", "v")
    place.mkdir(parents=True)
    (place / "data").write_bytes(b"x" * 8192)
    watch = UsageWatch(lambda: [worker], paths, metrics, FakeClock())  # type: ignore[list-item]
    return watch, worker, metrics


async def test_a_pod_that_fills_its_volume_is_evicted_once(tmp_path: Path) -> None:
    watch, worker, metrics = watching(tmp_path, sizeLimit="1Ki")
    for _ in range(2):
        await watch.look()
    message = 'Usage of EmptyDir volume "v" exceeds the limit "1Ki". '
    assert worker.endings[0] == Ending("Evicted", message)
    assert metrics.evictions.value(eviction_signal="emptydirfs.limit") == 1


@pytest.mark.parametrize(
    "source", [{}, {"sizeLimit": "1Gi"}, {"sizeLimit": "1Ki", "medium": "Memory"}]
)
async def test_others_are_left_alone(tmp_path: Path, source: Any) -> None:
    watch, worker, _ = watching(tmp_path, **source)
    await watch.look()
    assert worker.endings == []
