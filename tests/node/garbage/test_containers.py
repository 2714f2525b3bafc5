from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from moorage.node.garbage.containers import (
    ContainerCollector,
    all_garbage_in,
    garbage_in,
    remove_message_file,
)
from moorage.node.options import ContainerGarbageOptions
from moorage.node.paths import NodePaths
from moorage.node.runtime.views import MountView, PodView
from tests.clocks import START_S, FakeClock
from tests.node.objects import UID, a_sandbox, a_view, engine_has, exited


def runs(count: int, name: str = "app", *, then: bool = True) -> list[Any]:
    """A container that crashed so many times, and runs again."""
    dead = [
        exited(name, 1, restarts=index, created_s=index * 10, finished_s=index * 10 + 5)
        for index in range(count)
    ]
    return [*dead, engine_has(name, restarts=count, created_s=count * 10)] if then else dead


def going(*pods: PodView, now_s: float = 10_000, **options: Any) -> list[str]:
    garbage = garbage_in(pods, ContainerGarbageOptions(**options), START_S + now_s)
    return [container.id for _, container in garbage.containers] + [
        sandbox.id for sandbox in garbage.sandboxes
    ]


@pytest.mark.parametrize(
    ("pods", "options", "wanted"),
    [
        (runs(1), {}, []),
        (runs(3), {}, ["app-1", "app-0"]),
        (runs(3), {"per_container": 0}, ["app-2", "app-1", "app-0"]),
        (runs(3, then=False), {}, ["app-0"]),
        (runs(3), {"minimum_age_s": 9985}, ["app-1", "app-0"]),
        (runs(3), {"minimum_age_s": 9990}, ["app-0"]),
        ([*runs(2, "a"), *runs(2, "b")], {}, ["b-0", "a-0"]),
        ([*runs(2, "a"), *runs(2, "b")], {"in_all": 1}, ["b-0", "a-0", "a-1"]),
        ([*runs(2, "a"), *runs(2, "b")], {"in_all": 0}, ["b-0", "a-0", "b-1", "a-1"]),
    ],
    ids=[
        "the last one stays for its log",
        "older ones go",
        "none is kept",
        "the newest is the present, dead or not",
        "old enough",
        "too young",
        "by name",
        "in all",
        "none in all",
    ],
)
def test_which_containers_go(pods: list[Any], options: Any, wanted: list[str]) -> None:
    gone = going(a_view(*pods), **options)
    assert sorted(gone) == sorted(wanted)


def test_a_dead_sandbox_goes_when_nothing_is_in_it_any_more() -> None:
    old = a_sandbox("old", is_ready=False, created_ns=1)
    older = a_sandbox("older", is_ready=False, created_ns=0)
    new = a_sandbox("new", created_ns=2)
    inside = exited("other", sandbox_id="old")
    assert going(a_view(new, old, older, inside)) == ["older"]
    assert going(a_view(new, a_sandbox("two", created_ns=1))) == []
    assert going(a_view(a_sandbox(is_ready=False))) == []


class Node:
    """Remembers what was removed, in order."""

    def __init__(self, *pods: PodView) -> None:
        self.pods = pods
        self.done: list[str] = []

    async def remove_container(self, one: Any, other: Any = None) -> None:
        self.done.append(f"logs {other.id}" if other is not None else f"container {one}")

    async def stop_sandbox(self, sandbox_id: str) -> None:
        self.done.append(f"stop {sandbox_id}")

    async def remove_sandbox(self, sandbox_id: str) -> None:
        self.done.append(f"sandbox {sandbox_id}")

    def forget_container(self, container_id: str) -> None:
        self.done.append(f"forget {container_id}")

    forget_sandbox = forget_container


async def test_only_pods_with_a_worker_are_looked_at(tmp_path: Path) -> None:
    dead = a_sandbox("dead", is_ready=False, created_ns=0)
    view = a_view(a_sandbox(), dead, *runs(2))
    node: Any = Node(view, PodView("other", containers=tuple(runs(3))))
    clock = FakeClock()
    clock.advance(10_000)
    collector = ContainerCollector(
        engine=node,
        observer=node,
        logs=node,
        paths=NodePaths(tmp_path, tmp_path),
        options=ContainerGarbageOptions(),
        clock=clock,
        workers=lambda: {UID},
    )
    await collector.collect()
    assert node.done == [
        "logs app-0",
        "container app-0",
        "forget app-0",
        "stop dead",
        "sandbox dead",
        "forget dead",
    ]


def test_the_message_file_of_a_dead_container_goes_and_nothing_else(tmp_path: Path) -> None:
    paths = NodePaths(tmp_path, tmp_path)
    directory = paths.pod(UID).container("app")
    directory.mkdir(parents=True)
    for name in ("old", "current"):
        (directory / name).write_text("x")
    volume = tmp_path / "volume"
    volume.write_text("x")
    container = exited(
        "app",
        mounts=(
            MountView(str(directory / "old"), "/dev/termination-log"),
            MountView(str(volume), "/data"),
        ),
    )
    for _ in range(2):
        remove_message_file(paths, container)
    assert [path.name for path in directory.iterdir()] == ["current"]
    assert volume.exists()


def test_under_pressure_dead_containers_go_but_the_current_ones_of_live_pods() -> None:
    live = a_view(*runs(3))
    dead = PodView("ended", containers=tuple(runs(2, then=False)))
    garbage = all_garbage_in([live, dead], {"ended"})
    gone = [(pod.uid, container.id) for pod, container in garbage.containers]
    assert sorted(gone) == [
        (UID, "app-0"), (UID, "app-1"), (UID, "app-2"), ("ended", "app-0"), ("ended", "app-1"),
    ]  # fmt: skip
    assert garbage.sandboxes == ()
