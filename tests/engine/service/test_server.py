"""Calls bound to methods, errors to codes, and callers that go away."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import grpc
import pytest

from moorage.api.logs import LineFormatter
from moorage.engine.errors import (
    EngineError,
    ExhaustedError,
    FailedError,
    InvalidError,
    NotFoundError,
    PreconditionError,
    TimeLimitError,
    UnsupportedCallError,
)
from moorage.engine.handlers.adapters import AdapterError, TaskNotFoundError, UnsupportedError
from moorage.engine.service import serve
from moorage.engine.service.server import answer_to, method_name
from moorage.wire.cri import CriClient, CriError, pb

Code = grpc.StatusCode


@pytest.mark.parametrize(
    ("call", "method"),
    [
        ("RunPodSandbox", "run_pod_sandbox"),
        ("ImageFsInfo", "image_fs_info"),
        ("Version", "version"),
        ("ListPodSandboxMetrics", "list_pod_sandbox_metrics"),
    ],
)
def test_method_name_is_the_call_in_snake_case(call: str, method: str) -> None:
    assert method_name(call) == method


def test_every_call_of_the_cri_has_a_name_of_its_own() -> None:
    calls = [
        method.name
        for service in pb.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    ]
    names = {method_name(call) for call in calls}
    assert len(names) == len(set(calls))
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", name) for name in names)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotFoundError("x"), Code.NOT_FOUND),
        (InvalidError("x"), Code.INVALID_ARGUMENT),
        (PreconditionError("x"), Code.FAILED_PRECONDITION),
        (UnsupportedCallError("x"), Code.UNIMPLEMENTED),
        (TimeLimitError("x"), Code.DEADLINE_EXCEEDED),
        (ExhaustedError("x"), Code.RESOURCE_EXHAUSTED),
        (FailedError("x"), Code.UNKNOWN),
        (EngineError("x"), Code.UNKNOWN),
        (TaskNotFoundError("x"), Code.NOT_FOUND),
        (UnsupportedError("x"), Code.UNIMPLEMENTED),
        (AdapterError("x"), Code.UNKNOWN),
        (ExceptionGroup("several", [NotFoundError("x")]), Code.NOT_FOUND),
        (ValueError("x"), Code.UNKNOWN),
    ],
)
def test_error_has_a_code_and_its_message(error: Exception, code: grpc.StatusCode) -> None:
    assert answer_to("Call", error) in ((code, "x"), (code, "ValueError: x"))


def test_error_message_is_one_line() -> None:
    for error in (FailedError("first\n  then\tmore"), AdapterError("first\n  then\tmore")):
        assert answer_to("Call", error)[1] == "first then more"


@pytest.mark.parametrize("text", ["x" * 10_000_000, "é" * 100_000, "x" * 2399 + "😀" * 3])
def test_an_error_message_fits_the_answers_headers(text: str) -> None:
    """A client refuses headers of more than 8 KiB, where a byte that is no ASCII takes three."""
    for error in (FailedError(f"begins {text}; free it"), ValueError(f"begins {text}; free it")):
        message = answer_to("Call", error)[1]
        assert len(quote(message)) < 8000
        assert "begins x" in message or "begins é" in message
        assert message.endswith("; free it")


class FakeCalls:
    """Some of the CRI's calls, answered without an engine."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.release = asyncio.Event()
        self.ended = asyncio.Event()
        self.finished: list[str] = []

    async def version(self, request: pb.VersionRequest) -> pb.VersionResponse:
        return pb.VersionResponse(version=request.version)

    async def stop_container(self, request: pb.StopContainerRequest) -> pb.StopContainerResponse:
        self.begun.set()
        await self.release.wait()
        self.finished.append(request.container_id)
        self.ended.set()
        return pb.StopContainerResponse()

    async def stop_pod_sandbox(
        self, request: pb.StopPodSandboxRequest
    ) -> pb.StopPodSandboxResponse:
        self.begun.set()
        await self.release.wait()
        self.finished.append(request.pod_sandbox_id)
        raise FailedError("busy")

    async def remove_container(
        self, request: pb.RemoveContainerRequest
    ) -> pb.RemoveContainerResponse:
        raise NotFoundError(f"container\n{request.container_id}")

    async def get_container_events(
        self, request: pb.GetEventsRequest
    ) -> AsyncIterator[pb.ContainerEventResponse]:
        del request
        yield pb.ContainerEventResponse(container_id="a")
        raise ExhaustedError("too slow")


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[tuple[FakeCalls, CriClient]]:
    calls, socket = FakeCalls(), tmp_path / "s.sock"
    socket.write_text("left behind")
    async with serve(socket, (calls,)):
        assert socket.stat().st_mode & 0o777 == 0o600
        async with CriClient(f"unix://{socket}") as cri:
            yield calls, cri
    assert not socket.exists()


Served = tuple[FakeCalls, CriClient]


async def test_calls_are_answered_refused_or_not_there(served: Served) -> None:
    _, cri = served
    reply = await cri.call(cri.runtime.Version, pb.VersionRequest(version="v1"))
    assert reply.version == "v1"
    with pytest.raises(CriError) as refused:
        await cri.call(cri.runtime.RemoveContainer, pb.RemoveContainerRequest(container_id="c"))
    assert (refused.value.code, refused.value.sentence) == (Code.NOT_FOUND, "container c")
    with pytest.raises(CriError) as absent:
        await cri.call(cri.runtime.Status, pb.StatusRequest())
    assert absent.value.is_unimplemented


async def test_a_stream_ends_with_its_error(served: Served) -> None:
    _, cri = served
    stream = cri.stream(cri.runtime.GetContainerEvents, pb.GetEventsRequest())
    assert (await anext(stream)).container_id == "a"
    with pytest.raises(CriError, match="too slow") as raised:
        await anext(stream)
    assert raised.value.code is Code.RESOURCE_EXHAUSTED


async def _give_up(
    calls: FakeCalls, caller: asyncio.Task[Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Give up a call once it has reached the server, and wait until the server knows."""
    caplog.set_level(logging.DEBUG, logger="moorage.engine.service.server")
    await calls.begun.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    await _logged(caplog, "client disconnected")
    caplog.clear()


async def _logged(caplog: pytest.LogCaptureFixture, start: str) -> logging.LogRecord:
    """Wait for a record whose message begins with `start`."""
    while True:
        for record in caplog.records:
            if record.getMessage().startswith(start):
                return record
        await asyncio.sleep(0.01)


async def test_what_a_caller_asked_for_is_done_though_it_went_away(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    calls, cri = served
    request = pb.StopContainerRequest(container_id="c")
    caller = asyncio.create_task(cri.call(cri.runtime.StopContainer, request))
    await _give_up(calls, caller, caplog)
    assert not calls.finished
    calls.release.set()
    await calls.ended.wait()
    assert calls.finished == ["c"]


async def test_failure_of_an_abandoned_call_is_logged(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    calls, cri = served
    request = pb.StopPodSandboxRequest(pod_sandbox_id="s")
    caller = asyncio.create_task(cri.call(cri.runtime.StopPodSandbox, request))
    await _give_up(calls, caller, caplog)
    calls.release.set()
    record = await _logged(caplog, "call failed after the client disconnected")
    assert "StopPodSandbox" in str(vars(record))
    assert calls.finished == ["s"]


async def test_a_call_that_fails_is_logged_for_debugging(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="moorage.engine.service.server")
    _, cri = served
    with pytest.raises(CriError):
        await cri.call(cri.runtime.RemoveContainer, pb.RemoveContainerRequest(container_id="c"))
    lines = [LineFormatter().format(record) for record in caplog.records]
    (line,) = [line for line in lines if "failed call=RemoveContainer took_ms=" in line]
    assert "code=" in line
