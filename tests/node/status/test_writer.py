from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from moorage.api.errors import ConflictError, NotFoundError, UnavailableError
from moorage.api.pods import Pod, PodStatus
from moorage.node.status.writer import StatusWriter, is_urgent
from moorage.wire.client.resources import PODS
from moorage.wire.client.rest import PatchType
from tests.clocks import FakeClock, settle
from tests.node.objects import a_pod


class FakeServer:
    """Keeps every status that is written; fails as often as it is configured to."""

    def __init__(self, *failures: Exception) -> None:
        self.written: list[dict[str, Any]] = []
        self._failures = list(failures)
        self._version = 10

    async def patch(
        self, resource: Any, name: str, patch: Any, namespace: str, *, kind: Any, subresource: str
    ) -> Pod:
        assert (resource, name, namespace) == (PODS, "web", "shop")
        assert (kind, subresource) == (PatchType.STRATEGIC, "status")
        await asyncio.sleep(0)
        if self._failures:
            raise self._failures.pop(0)
        self._version += 1
        self.written.append(patch["status"])
        return pod(self._version, **{k: v for k, v in patch["status"].items() if v is not None})


def pod(version: int = 1, **status: Any) -> Pod:
    return a_pod(meta={"resourceVersion": str(version)}, status=status)


def status(**fields: Any) -> PodStatus:
    return msgspec.convert(fields, PodStatus)


@asynccontextmanager
async def writing(server: FakeServer, clock: FakeClock) -> AsyncIterator[StatusWriter]:
    writer = StatusWriter(server, clock)  # type: ignore[arg-type]
    task = asyncio.ensure_future(writer.write(pod()))
    await settle()
    yield writer
    task.cancel()
    await asyncio.wait((task,))


async def test_a_phase_is_written_at_once() -> None:
    server = FakeServer()
    async with writing(server, FakeClock()) as writer:
        writer.submit(pod(), status(phase="Running"))
        assert await writer.wait_written(pod().metadata.uid)
    assert server.written == [{"phase": "Running"}]


async def test_lesser_changes_wait_a_moment_and_go_together() -> None:
    server, clock = FakeServer(), FakeClock()
    async with writing(server, clock) as writer:
        writer.submit(pod(), status(podIP="10.1.0.5"))
        await settle()
        writer.submit(pod(), status(podIP="10.1.0.5", hostIP="10.0.0.1"))
        await settle()
        assert server.written == []
        clock.advance(0.3)
        await settle()
    assert server.written == [{"podIP": "10.1.0.5", "hostIP": "10.0.0.1"}]


async def test_urgent_write_includes_delayed_changes() -> None:
    server = FakeServer()
    async with writing(server, FakeClock()) as writer:
        writer.submit(pod(), status(podIP="10.1.0.5"))
        await settle()
        writer.submit(pod(), status(podIP="10.1.0.5", phase="Running"))
        await settle()
    assert server.written == [{"podIP": "10.1.0.5", "phase": "Running"}]
    # Nothing waits for that moment any longer.
    await settle()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_what_the_api_has_is_not_written_again() -> None:
    server = FakeServer()
    async with writing(server, FakeClock()) as writer:
        writer.submit(pod(phase="Running"), status(phase="Running"))
        for _ in range(2):
            writer.submit(pod(), status(phase="Failed"))
            await settle()
    assert server.written == [{"phase": "Failed"}]


async def test_what_someone_else_changed_is_put_right() -> None:
    server = FakeServer()
    async with writing(server, FakeClock()) as writer:
        writer.submit(pod(), status(phase="Running"))
        await settle()
        writer.seen(pod(5, phase="Odd"))
        await settle()
        assert len(server.written) == 1, "an older object says nothing"
        writer.seen(pod(50, phase="Odd"))
        writer.submit(pod(50, phase="Odd"), status(phase="Running", reason="now"))
        await settle()
    assert server.written == [{"phase": "Running"}]


async def test_a_server_that_is_away_is_asked_again() -> None:
    server, clock = FakeServer(UnavailableError("busy"), UnavailableError("busy")), FakeClock()
    async with writing(server, clock) as writer:
        writer.submit(pod(), status(phase="Running"))
        await settle()
        for _ in range(2):
            assert server.written == []
            clock.advance(1)
            await settle()
    assert server.written == [{"phase": "Running"}]


@pytest.mark.parametrize(
    "failure", [NotFoundError.of("pods", "web"), ConflictError("the uid differs")]
)
async def test_a_pod_that_is_gone_is_not_written_any_more(failure: Exception) -> None:
    server = FakeServer(failure)
    async with writing(server, FakeClock()) as writer:
        writer.submit(pod(), status(phase="Running"))
        assert not await writer.wait_written(pod().metadata.uid)
        writer.submit(pod(), status(phase="Failed"))
        await settle()
    assert server.written == []


READY = {"conditions": [{"type": "Ready", "status": "True"}]}


@pytest.mark.parametrize(
    ("before", "after", "wanted"),
    [
        ({}, {"phase": "Running"}, True),
        ({}, READY, True),
        (READY, {}, True),
        ({}, {"podIP": "10.1.0.5"}, False),
        (READY, READY, False),
    ],
)
def test_what_others_wait_for(before: Any, after: Any, wanted: bool) -> None:
    assert is_urgent(status(**before), status(**after)) is wanted


async def test_the_status_of_a_static_pod_goes_to_its_mirror() -> None:
    server = FakeServer(NotFoundError.of("pods", "web"))
    annotations = {"kubernetes.io/config.source": "file"}
    static = a_pod(meta={"annotations": annotations})
    uid = static.metadata.uid
    writer = StatusWriter(server, FakeClock())  # type: ignore[arg-type]
    task = asyncio.ensure_future(writer.write(static))
    writer.submit(static, status(phase="Running"))
    await settle()
    assert server.written == []
    # The first mirror is gone at once; another is made.
    for version in ("5", "7"):
        meta = {"uid": f"mirror-{version}", "resourceVersion": version, "annotations": annotations}
        writer.mirror_seen(uid, a_pod(meta=meta))
        await settle()
    assert server.written == [{"phase": "Running"}]
    assert not task.done()
    task.cancel()
    await asyncio.wait((task,))
