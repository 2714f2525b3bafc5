"""Pods that a restarted engine disturbed, apart from those that end at any time."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from typing import Any

import grpc
import pytest

from moorage.api.runtime_group import PROBE_LABEL
from moorage.linux.process import Identity, began
from moorage.runtimes.installing.running_processes import (
    PodProcess,
    find_disturbed,
    running_processes,
)
from moorage.wire.cri import CriError, pb


class Engine:
    """An engine of sandboxes and containers with a process each."""

    def __init__(self, pid: int, labels: Mapping[str, str] | None = None) -> None:
        self.runtime: Any = self
        self.pid = pid
        self.labels = dict(labels or {})
        self.sandbox, self.container, self.exit_code = pb.SANDBOX_READY, pb.CONTAINER_RUNNING, 0
        self.is_gone = False
        self.ListPodSandbox = self.ListContainers = None
        self.PodSandboxStatus = self.ContainerStatus = None

    async def call(self, _: Any, request: Any) -> Any:
        info = {"info": f'{{"pid": {self.pid}}}'}
        if isinstance(request, pb.ListPodSandboxRequest):
            metadata = pb.PodSandboxMetadata(name="p", namespace="d")
            one = pb.PodSandbox(id="s", metadata=metadata, state=self.sandbox, labels=self.labels)
            return pb.ListPodSandboxResponse(items=[one])
        if isinstance(request, pb.ListContainersRequest):
            app = pb.ContainerMetadata(name="app")
            listed = pb.Container(id="c", pod_sandbox_id="s", metadata=app, state=self.container)
            return pb.ListContainersResponse(containers=[listed])
        if self.is_gone:
            raise CriError("Status", grpc.StatusCode.NOT_FOUND, "gone")
        if isinstance(request, pb.PodSandboxStatusRequest):
            return pb.PodSandboxStatusResponse(
                status=pb.PodSandboxStatus(state=self.sandbox), info=info
            )
        status = pb.ContainerStatus(state=self.container, exit_code=self.exit_code)
        return pb.ContainerStatusResponse(status=status, info=info)


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as started:
        yield started
        started.kill()


async def _before(engine: Any) -> dict[str, PodProcess]:
    return await running_processes(engine)


async def test_what_still_runs_is_undisturbed(process: subprocess.Popen[bytes]) -> None:
    engine: Any = Engine(process.pid)
    before = await _before(engine)
    ticks = began(process.pid)
    assert ticks is not None
    identity = Identity(process.pid, ticks)
    assert before == {
        "s": PodProcess("sandbox of d/p", is_sandbox=True, identity=identity, sandbox="s"),
        "c": PodProcess("container app (c)", is_sandbox=False, identity=identity, sandbox="s"),
    }
    assert await find_disturbed(engine, before) == []


async def test_probes_are_no_pods_that_could_be_disturbed(
    process: subprocess.Popen[bytes],
) -> None:
    assert await _before(Engine(process.pid, {PROBE_LABEL: "a"})) == {}


@pytest.mark.parametrize(
    ("exit_code", "disturbed"),
    [
        (0, []),
        (143, []),
        (137, ["sandbox of d/p ended", "container app (c) ended"]),
        (255, ["sandbox of d/p ended", "container app (c) ended"]),
    ],
)
async def test_a_pod_that_is_deleted_or_completes_meanwhile_is_undisturbed(
    process: subprocess.Popen[bytes], exit_code: int, disturbed: list[str]
) -> None:
    engine: Any = Engine(process.pid)
    before = await _before(engine)
    process.kill()
    process.wait()
    engine.sandbox, engine.container = pb.SANDBOX_NOTREADY, pb.CONTAINER_EXITED
    engine.exit_code = exit_code
    assert await find_disturbed(engine, before) == disturbed
    engine.is_gone = True
    assert await find_disturbed(engine, before) == []


async def test_what_an_engine_takes_for_ended_or_lost_is_disturbed(
    process: subprocess.Popen[bytes],
) -> None:
    engine: Any = Engine(process.pid)
    before = await _before(engine)
    engine.sandbox, engine.container, engine.exit_code = (
        pb.SANDBOX_NOTREADY, pb.CONTAINER_EXITED, 255,
    )  # fmt: skip
    assert await find_disturbed(engine, before) == [
        "the engine takes sandbox of d/p for ended",
        "the engine takes container app (c) for ended",
    ]
    engine.is_gone = True
    assert await find_disturbed(engine, before) == [
        "the engine lost sandbox of d/p",
        "the engine lost container app (c)",
    ]
