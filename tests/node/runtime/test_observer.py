"""What runs on the node, kept current by lists, by events, and by the agent's own actions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc

from moorage.node.pod_facts.labels import MESSAGE_PATH, OWNER, POD_UID
from moorage.node.runtime.observer import Observer
from moorage.wire.cri import CriError, pb
from tests.clocks import FakeClock, settle
from tests.node.engine import FakeEngine

MINE, OTHERS = "uid-1", "uid-2"


class Engine(FakeEngine):
    """Counts what is read, and streams what `happened` is given."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.reads: list[str] = []
        self.lists = 0
        self.has_events = True
        self.is_away = False
        self.streams = 0
        self.happened: asyncio.Queue[str | None] = asyncio.Queue()

    async def sandboxes(self, uid: str | None = None) -> list[pb.PodSandbox]:
        self.lists += uid is None
        if self.is_away:
            raise CriError("ListPodSandbox", grpc.StatusCode.UNAVAILABLE, "away")
        return await super().sandboxes(uid)

    async def sandbox_status(self, sandbox_id: str) -> pb.PodSandboxStatus:
        self.reads.append(sandbox_id)
        return await super().sandbox_status(sandbox_id)

    async def container_status(self, container_id: str) -> pb.ContainerStatus:
        self.reads.append(container_id)
        return await super().container_status(container_id)

    async def events(self) -> AsyncIterator[pb.ContainerEventResponse]:
        if not self.has_events:
            raise CriError("GetContainerEvents", grpc.StatusCode.UNIMPLEMENTED, "none")
        self.streams += 1
        while (uid := await self.happened.get()) is not None:
            metadata = pb.PodSandboxMetadata(uid=uid)
            yield pb.ContainerEventResponse(
                pod_sandbox_status=pb.PodSandboxStatus(metadata=metadata)
            )
        raise CriError("GetContainerEvents", grpc.StatusCode.UNAVAILABLE, "gone")


class Node:
    """An observer of an engine with sandboxes, and which pods it has spoken of."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.engine = Engine(self.clock)
        self.observer = Observer(self.engine, self.clock, period_s=1.0)  # type: ignore[arg-type]
        self.notified: list[str] = []
        self.observer.add_listener(self.notified.append)

    async def add_sandbox(self, uid: str = MINE) -> str:
        config = pb.PodSandboxConfig(
            metadata=pb.PodSandboxMetadata(name="web", namespace="shop", uid=uid),
            labels={POD_UID: uid, OWNER: "c1_n1"},
        )
        return await self.engine.run_sandbox(config, "")

    async def add_container(self, sandbox_id: str, name: str = "app") -> str:
        config = pb.ContainerConfig(
            metadata=pb.ContainerMetadata(name=name), labels={POD_UID: MINE, OWNER: "c1_n1"}
        )
        container_id = await self.engine.create_container(
            sandbox_id, config, pb.PodSandboxConfig(log_directory="/logs")
        )
        await self.engine.start_container(container_id)
        return container_id

    def sandbox_ids(self, uid: str = MINE) -> list[str]:
        return [sandbox.id for sandbox in self.observer.view(uid).sandboxes]

    async def pass_time(self, seconds: float) -> None:
        await settle()
        self.clock.advance(seconds)
        await settle()


async def test_a_list_reads_only_what_changed() -> None:
    node = Node()
    sandboxes = [await node.add_sandbox(MINE), await node.add_sandbox(OTHERS)]
    container = await node.add_container(sandboxes[0])
    await node.observer.relist()
    assert sorted(node.engine.reads) == sorted([*sandboxes, container])
    assert sorted(set(node.notified)) == [MINE, OTHERS]
    assert {pod.uid for pod in node.observer.pods} == {MINE, OTHERS}
    node.engine.reads.clear()
    node.notified.clear()
    await node.observer.relist()
    assert (node.engine.reads, node.notified) == ([], [])
    node.engine.end("app", 3)
    await node.observer.relist()
    assert (node.engine.reads, node.notified) == ([container], [MINE])
    await node.engine.remove_sandbox(sandboxes[1])
    await node.observer.relist()
    assert node.notified == [MINE, OTHERS]
    assert node.observer.view(OTHERS).is_empty
    assert node.sandbox_ids() == sandboxes[:1]


async def test_what_has_gone_when_it_is_read_again_leaves_the_view() -> None:
    node = Node()
    first, second = await node.add_sandbox(), await node.add_sandbox()
    container = await node.add_container(second)
    await node.observer.relist()
    await node.engine.remove_sandbox(first)
    node.notified.clear()
    assert await node.observer.refresh_sandbox(first) is None
    assert node.sandbox_ids() == [second]
    assert node.notified == [MINE]
    await node.engine.remove_container(container)
    assert await node.observer.refresh_container(container, second) is None
    assert not node.observer.view(MINE).alive
    assert node.notified == [MINE, MINE]
    assert await node.observer.refresh_sandbox("never") is None
    assert node.notified == [MINE, MINE]


async def test_what_the_agent_removed_leaves_at_once() -> None:
    node = Node()
    first, second = await node.add_sandbox(), await node.add_sandbox()
    containers = [await node.add_container(sandbox, name) for sandbox, name in
                  ((first, "a"), (first, "b"), (second, "c"))]  # fmt: skip
    await node.observer.relist()
    node.notified.clear()
    node.observer.forget_container(containers[0])
    assert sorted(container.name for container in node.observer.view(MINE).alive) == ["b", "c"]
    node.observer.forget_sandbox(first)
    assert [container.name for container in node.observer.view(MINE).alive] == ["c"]
    assert node.sandbox_ids() == [second]
    assert node.notified == [MINE, MINE]
    node.observer.forget_container("never")
    node.observer.forget_sandbox("never")
    assert node.notified == [MINE, MINE]


async def test_a_pod_read_again_is_whole_and_no_other_pod_changes() -> None:
    node = Node()
    mine, others = await node.add_sandbox(MINE), await node.add_sandbox(OTHERS)
    gone = await node.add_sandbox(MINE)
    await node.observer.relist()
    await node.engine.remove_sandbox(gone)
    await node.engine.remove_sandbox(others)
    await node.add_container(mine)
    node.notified.clear()
    await node.observer.refresh_pod(MINE)
    assert node.sandbox_ids() == [mine]
    assert [container.name for container in node.observer.view(MINE).alive] == ["app"]
    assert node.sandbox_ids(OTHERS) == [others]
    assert node.notified == [MINE]


async def test_a_termination_message_stays_when_its_file_is_gone(tmp_path: Path) -> None:
    """The files of a pod that has ended are removed while the engine still reports events."""
    node, file = Node(), tmp_path / "message"
    sandbox = await node.add_sandbox()
    config = pb.ContainerConfig(
        metadata=pb.ContainerMetadata(name="app"),
        labels={POD_UID: MINE, OWNER: "c1_n1"},
        annotations={MESSAGE_PATH: "/dev/termination-log"},
        mounts=[pb.Mount(container_path="/dev/termination-log", host_path=str(file))],
    )
    container = await node.engine.create_container(sandbox, config, pb.PodSandboxConfig())
    await node.engine.start_container(container)
    file.write_text("done")
    await node.engine.stop_container(container, 0)
    await node.observer.refresh_pod(MINE)
    file.unlink()
    await node.observer.refresh_pod(MINE)
    assert [one.message for one in node.observer.view(MINE).containers] == ["done"]


async def test_an_engine_without_events_is_listed_each_period() -> None:
    node = Node()
    node.engine.has_events = False
    task = asyncio.ensure_future(node.observer.run())
    try:
        await node.observer.wait_listed()
        for wanted in (1, 2, 3):
            assert node.engine.lists == wanted
            await node.pass_time(1)
        node.engine.is_away = True
        await node.pass_time(1)
        node.engine.is_away = False
        mine = await node.add_sandbox()
        await node.pass_time(1)
        assert node.sandbox_ids() == [mine]
    finally:
        task.cancel()
        await asyncio.wait((task,))


async def test_an_engine_with_events_is_listed_seldom_and_asked_for_events_again() -> None:
    node = Node()
    task = asyncio.ensure_future(node.observer.run())
    try:
        await node.observer.wait_listed()
        mine = await node.add_sandbox()
        node.engine.happened.put_nowait("")
        node.engine.happened.put_nowait(MINE)
        await settle()
        assert node.sandbox_ids() == [mine]
        await node.pass_time(1)
        lists = node.engine.lists
        await node.pass_time(299)
        assert node.engine.lists == lists
        await node.pass_time(1)
        assert node.engine.lists == lists + 1
        # A stream that ends is opened again, and lists fill the time until then.
        node.engine.happened.put_nowait(None)
        await node.pass_time(4)
        assert node.engine.streams == 1
        await node.pass_time(1)
        assert node.engine.streams == 2
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.wait((task,))
