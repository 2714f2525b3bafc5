from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from moorage.api.pods import Pod
from moorage.node.garbage.containers import OrphanCollector
from moorage.node.paths import NodePaths
from moorage.node.pod_facts.errors import TeardownError
from moorage.node.runtime.views import PodView
from tests.clocks import FakeClock
from tests.node.objects import a_sandbox


class FakeNode:
    """Everything the collector works on; remembers what was done."""

    def __init__(self, root: Path) -> None:
        self.paths = NodePaths(root, root / "logs")
        self.workers: set[str] = set()
        self.views: dict[str, PodView] = {}
        self.done: list[str] = []
        self.stuck: set[str] = set()
        self.comes_meanwhile = ""

    def collector(self) -> OrphanCollector:
        me: Any = self
        return OrphanCollector(
            owner="c1_n1",
            node_name="n1",
            engine=me,
            observer=me,
            stopper=me,
            volumes=me,
            cgroups=me,
            logs=me,
            paths=self.paths,
            clock=FakeClock(),
            workers=lambda: self.workers,
        )

    def put(self, uid: str, owner: str = "c1_n1") -> None:
        sandbox = a_sandbox(f"s-{uid}", uid=uid, owner=owner)
        self.views[uid] = PodView(uid, "web", "shop", (sandbox,))

    @property
    def pods(self) -> tuple[PodView, ...]:
        return tuple(self.views.values())

    def view(self, uid: str) -> PodView:
        return self.views.get(uid) or PodView(uid)

    async def stop_orphan(self, view: PodView) -> None:
        if view.uid in self.stuck:
            raise TeardownError("it does not end")
        if self.comes_meanwhile:
            self.workers.add(self.comes_meanwhile)
            (self.paths.pods / self.comes_meanwhile).mkdir(parents=True)
        self.done.append(f"stop {view.uid}")

    async def remove_sandbox(self, sandbox_id: str) -> None:
        self.done.append(f"remove {sandbox_id}")

    def forget_sandbox(self, sandbox_id: str) -> None:
        del self.views[sandbox_id.removeprefix("s-")]

    async def remove_pod(self, pod: Pod, view: PodView) -> None:
        assert pod.metadata.uid == view.uid
        self.done.append(f"logs {view.uid}")

    async def remove(self, uid: str) -> None:
        self.done.append(f"volumes {uid}")

    def remove_cgroup(self, path: str) -> None:
        self.done.append(f"cgroup {path}")


class FakeCgroups:
    def __init__(self, node: FakeNode) -> None:
        self._node = node

    def remove(self, path: str) -> None:
        self._node.remove_cgroup(path)


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    return FakeNode(tmp_path)


async def collect(node: FakeNode) -> list[str]:
    collector = node.collector()
    collector._cgroups = FakeCgroups(node)  # type: ignore[assignment]
    await collector.collect()
    return node.done


async def test_orphaned_pod_is_stopped_and_cleaned_up(node: FakeNode) -> None:
    node.put("gone")
    (node.paths.pods / "gone").mkdir(parents=True)
    assert await collect(node) == [
        "stop gone",
        "remove s-gone",
        "logs gone",
        "cgroup kubepods/podgone",
        "cgroup kubepods/burstable/podgone",
        "cgroup kubepods/besteffort/podgone",
        "volumes gone",
    ]


async def test_pods_with_a_worker_and_those_of_other_agents_are_left_alone(node: FakeNode) -> None:
    node.put("ours")
    node.put("theirs", owner="c1_n2")
    node.put("kubelets", owner="")
    node.workers.add("ours")
    assert await collect(node) == []


async def test_pods_of_another_cluster_are_left_alone_though_its_node_has_the_same_name(
    node: FakeNode,
) -> None:
    node.put("theirs", owner="c2_n1")
    node.put("earlier", owner="n1")
    assert await collect(node) == []


@pytest.mark.parametrize("trace", ["pods/earlier", "logs/shop_web_earlier"])
async def test_orphans_of_an_earlier_version_are_ended_where_we_have_traces_of_them(
    node: FakeNode, tmp_path: Path, trace: str
) -> None:
    node.put("earlier", owner="n1")
    (tmp_path / trace).mkdir(parents=True)
    assert (await collect(node))[:2] == ["stop earlier", "remove s-earlier"]


async def test_directory_stays_while_containers_of_its_pod_run(node: FakeNode) -> None:
    node.put("theirs", owner="n2")
    (node.paths.pods / "theirs").mkdir(parents=True)
    assert await collect(node) == []


async def test_one_that_does_not_end_does_not_keep_others(node: FakeNode) -> None:
    node.put("stuck")
    node.put("gone")
    node.stuck.add("stuck")
    assert await collect(node) == ["stop gone", "remove s-gone", "logs gone"]


async def test_a_pod_that_comes_while_others_are_ended_is_not_taken_for_one(
    node: FakeNode,
) -> None:
    node.put("gone")
    node.comes_meanwhile = "newborn"
    assert "volumes newborn" not in await collect(node)
