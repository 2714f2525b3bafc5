"""Calls of an engine: the connection, failures in the engine's words, streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, ClassVar

import grpc
import pytest
from grpc import aio

from moorage.wire.cri import CriClient, CriError, client, engine_pb, engine_probe, pb
from tests.fake_crio import Behaviour, FakeCrio, serving


@pytest.mark.parametrize("endpoint", ["/run/x.sock", "unix://run/x.sock", "tcp://1.2.3.4:5", ""])
def test_endpoint_without_socket_is_rejected(endpoint: str) -> None:
    with pytest.raises(ValueError, match="is not of the form unix:///path"):
        CriClient(endpoint)


@pytest.mark.parametrize(
    ("code", "spoken", "kind"),
    [
        (grpc.StatusCode.NOT_FOUND, "NotFound", "is_not_found"),
        (grpc.StatusCode.UNIMPLEMENTED, "Unimplemented", "is_unimplemented"),
        (grpc.StatusCode.UNAVAILABLE, "Unavailable", ""),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "DeadlineExceeded", "is_timeout"),
        (grpc.StatusCode.UNKNOWN, "Unknown", ""),
    ],
)
def test_a_failure_says_its_code_as_go_does(code: grpc.StatusCode, spoken: str, kind: str) -> None:
    error = CriError("Version", code, "why")
    assert str(error) == f"rpc error: code = {spoken} desc = why"
    assert (error.method, error.code, error.sentence) == ("Version", code, "why")
    kinds = ("is_not_found", "is_unimplemented", "is_timeout")
    assert [name for name in kinds if getattr(error, name)] == ([kind] if kind else [])


class Channel:
    """Takes the place of a connection; how it was made is in `made`."""

    made: ClassVar[list[tuple[Any, ...]]] = []

    def __init__(self, *made: Any, **more: Any) -> None:
        Channel.made.append((*made, *more.values()))
        self.is_closed = False

    async def close(self) -> None:
        self.is_closed = True

    async def __aenter__(self) -> Channel:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __getattr__(self, _name: str) -> Any:
        async def call(*_: Any, **__: Any) -> bytes:
            return b""

        return lambda *_, **__: call


async def test_a_connection_is_its_own_and_takes_large_messages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Channel.made.clear()
    monkeypatch.setattr(aio, "insecure_channel", Channel)
    async with CriClient("unix:///x.sock") as cri:
        channels = (cri._channel, cri._command_channel)
        stubs = (cri.runtime, cri.images, cri.engine)
        assert len({type(stub).__name__ for stub in stubs}) == 3
        assert type(cri.commands) is type(cri.runtime)
    for channel, (endpoint, options), limit in zip(
        channels, Channel.made, (2**24, 2**20), strict=True
    ):
        assert isinstance(channel, Channel)
        assert channel.is_closed
        assert endpoint == "unix:///x.sock"
        assert dict(options) == {
            "grpc.default_authority": "localhost",
            "grpc.max_receive_message_length": limit,
            "grpc.max_send_message_length": 2**24,
            "grpc.use_local_subchannel_pool": 1,
            "grpc.initial_reconnect_backoff_ms": 100,
            "grpc.max_reconnect_backoff_ms": 2000,
        }
    assert await engine_probe._speaks_former_version("unix:///y.sock", 5.0)
    endpoint, options = Channel.made[-1]
    assert endpoint == "unix:///y.sock"
    assert dict(options) == {
        "grpc.default_authority": "localhost",
        "grpc.use_local_subchannel_pool": 1,
    }
    await CriClient("unix:///x.sock").__aexit__()


async def test_failures_carry_the_engines_message(tmp_path: Path) -> None:
    async with (
        serving(FakeCrio(Behaviour(driver=None)), tmp_path) as endpoint,
        CriClient(endpoint) as cri,
    ):
        assert cri.endpoint == endpoint
        with pytest.raises(CriError) as failed:
            await cri.call(cri.runtime.RuntimeConfig, pb.RuntimeConfigRequest())
        assert failed.value.is_unimplemented
        assert failed.value.method == "RuntimeConfig"
        assert failed.value.sentence == "unknown method RuntimeConfig"
        # Not of this engine: the server knows no such service.
        with pytest.raises(CriError) as failed:
            await anext(cri.stream(cri.engine.WatchHandlers, engine_pb.WatchHandlersRequest()))
        assert failed.value.is_unimplemented
        assert failed.value.method == "WatchHandlers"


async def test_a_call_has_its_deadline() -> None:
    timeouts: list[float | None] = []

    async def method(_request: object, **options: float | None) -> str:
        timeouts.append(options["timeout"])
        return "reply"

    cri = CriClient("unix:///x.sock")
    method_: Any = method
    assert await cri.call(method_, None) == "reply"
    assert await cri.call(method_, None, timeout_s=None) == "reply"
    assert await cri.call(method_, None, timeout_s=2.5) == "reply"
    assert timeouts == [120.0, None, 2.5]
    assert client.SANDBOX_TIMEOUT_S == 240.0


async def test_a_stream_is_each_reply_until_its_end() -> None:
    def method(request: str) -> AsyncIterator[str]:
        async def replies() -> AsyncIterator[str]:
            for piece in request:
                await asyncio.sleep(0)
                yield piece

        return replies()

    method_: Any = method
    cri = CriClient("unix:///x.sock")
    assert [piece async for piece in cri.stream(method_, "abc")] == ["a", "b", "c"]


def test_a_failure_of_an_unnamed_method_has_no_details() -> None:
    error = aio.AioRpcError(grpc.StatusCode.ABORTED, aio.Metadata(), aio.Metadata())
    translated = client._translated(object(), error)
    assert (translated.method, translated.sentence) == ("", "")

    class Named:
        _method = "/a.b/Call"

    assert client._translated(Named(), error).method == "Call"
