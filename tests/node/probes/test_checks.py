from __future__ import annotations

import asyncio
from typing import Any

import grpc
import msgspec
import pytest
from grpc import aio

from moorage.api.containers import Probe, TCPSocketAction
from moorage.node.probes import checks
from moorage.node.probes.checks import CheckResult, Checks, HttpAnswer, HttpFailure, Outcome
from moorage.node.runtime.engine import ExecResult
from moorage.wire.cri import CriError
from tests.node.objects import a_container


class FakeEngine:
    def __init__(self, answer: ExecResult | CriError) -> None:
        self._answer = answer
        self.commands: list[list[str]] = []

    async def exec_sync(self, container_id: str, command: list[str], timeout_s: int) -> ExecResult:
        assert (container_id, timeout_s) == ("c1", 2)
        self.commands.append(command)
        if isinstance(self._answer, CriError):
            raise self._answer
        return self._answer


class FakeHttp:
    def __init__(self, answer: HttpAnswer | Exception) -> None:
        self._answer = answer

    async def get(self, *_: Any, **__: Any) -> HttpAnswer:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


async def check(probe: dict[str, Any], engine: Any = None, http: Any = None) -> CheckResult:
    container = a_container(env=[{"name": "A", "value": "one"}])
    wanted = msgspec.convert({"timeoutSeconds": 2, **probe}, Probe)
    return await Checks(engine, http).run(wanted, container, "c1", "127.0.0.1")


EXEC = {"exec": {"command": ["test", "$(A)"]}}
TIMED_OUT = 'command timed out: "test one" timed out after 2s'


def refused(code: grpc.StatusCode) -> CriError:
    return CriError("ExecSync", code, "it said so")


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        (ExecResult(b"out", b"err", 0), CheckResult(Outcome.SUCCESS, "outerr")),
        (ExecResult(b"", b"bad", 1), CheckResult(Outcome.FAILURE, "bad")),
        (ExecResult(b"", b"", -1), CheckResult(Outcome.FAILURE, TIMED_OUT)),
        (
            refused(grpc.StatusCode.DEADLINE_EXCEEDED),
            CheckResult(Outcome.FAILURE, TIMED_OUT),
        ),
        (
            refused(grpc.StatusCode.UNKNOWN),
            CheckResult(Outcome.ERROR, "rpc error: code = Unknown desc = it said so"),
        ),
    ],
    ids=["success", "failure", "some engines' timeout", "timeout", "error"],
)
async def test_commands(answer: ExecResult | CriError, wanted: CheckResult) -> None:
    engine = FakeEngine(answer)
    assert await check(EXEC, engine) == wanted
    assert engine.commands == [["test", "one"]]


async def test_what_a_command_prints_is_cut() -> None:
    errors = await check(EXEC, FakeEngine(ExecResult(b"x" * 20000, b"", 0)))
    assert len(errors.output) == 10 * 1024


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        (HttpAnswer(204, ""), CheckResult(Outcome.SUCCESS, "")),
        (HttpAnswer(200, "hi"), CheckResult(Outcome.SUCCESS, "hi")),
        (HttpAnswer(299, "hi"), CheckResult(Outcome.SUCCESS, "hi")),
        (
            HttpAnswer(199, "x"),
            CheckResult(Outcome.FAILURE, "HTTP probe failed with statuscode: 199"),
        ),
        (
            HttpAnswer(400, "x"),
            CheckResult(Outcome.FAILURE, "HTTP probe failed with statuscode: 400"),
        ),
        (
            HttpAnswer(302, "moved"),
            CheckResult(Outcome.WARNING, "Probe terminated redirects, Response body: moved"),
        ),
        (
            HttpAnswer(500, "x"),
            CheckResult(Outcome.FAILURE, "HTTP probe failed with statuscode: 500"),
        ),
        (HttpFailure("no route"), CheckResult(Outcome.FAILURE, "no route")),
        (ValueError("couldn't find port"), CheckResult(Outcome.ERROR, "couldn't find port")),
    ],
)
async def test_http(answer: Any, wanted: CheckResult) -> None:
    assert await check({"httpGet": {"port": 80}}, http=FakeHttp(answer)) == wanted


async def test_tcp() -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    assert (await check({"tcpSocket": {"port": port}})).outcome is Outcome.SUCCESS
    server.close()
    await server.wait_closed()
    assert await check({"tcpSocket": {"port": port}}) == CheckResult(
        Outcome.FAILURE, f"dial tcp 127.0.0.1:{port}: connect: connection refused"
    )


async def test_a_tcp_probe_hangs_up_once_it_is_connected() -> None:
    received: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.set_result(await reader.read())
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, asyncio.timeout(10):
        assert (await check({"tcpSocket": {"port": port}})).outcome is Outcome.SUCCESS
        assert await received == b""


async def test_a_probe_that_names_nothing_to_ask() -> None:
    assert await check({}) == CheckResult(Outcome.ERROR, "missing probe handler")


class FakeHealth(grpc.GenericRpcHandler):
    """grpc.health.v1 by hand: the status of a service is the length of its name."""

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        async def answer(request: bytes, _: Any) -> bytes:
            return bytes([0x08, len(request[2:])])

        if details.method != "/grpc.health.v1.Health/Check":
            return None
        return grpc.unary_unary_rpc_method_handler(
            answer, request_deserializer=bytes, response_serializer=bytes
        )


@pytest.mark.parametrize(
    ("service", "wanted"),
    [
        ("a", CheckResult(Outcome.SUCCESS, "service healthy")),
        (
            "ab",
            CheckResult(Outcome.FAILURE, 'service unhealthy (responded with "NOT_SERVING")'),
        ),
        ("", CheckResult(Outcome.FAILURE, 'service unhealthy (responded with "UNKNOWN")')),
    ],
)
async def test_grpc(service: str, wanted: CheckResult) -> None:
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((FakeHealth(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        assert await check({"grpc": {"port": port, "service": service}}) == wanted
    finally:
        await server.stop(None)


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("", b""),
        ("a", b"\x0a\x01a"),
        ("é", b"\x0a\x02\xc3\xa9"),
        ("x" * 127, b"\x0a\x7f" + b"x" * 127),
        ("x" * 128, b"\x0a\x80\x01" + b"x" * 128),
        ("x" * 300, b"\x0a\xac\x02" + b"x" * 300),
    ],
)
def test_the_name_of_a_service_as_protobuf(name: str, sent: bytes) -> None:
    assert checks.health_request(name) == sent


@pytest.mark.parametrize(
    ("reply", "status"),
    [(b"\x08\x01", 1), (b"\x08\x02", 2), (b"", 0), (b"\x08", 0), (b"\x10\x01", 0),
     (b"\x08\x03\x00", 3)],
)  # fmt: skip
def test_the_status_in_a_reply(reply: bytes, status: int) -> None:
    assert checks.health_status(reply) == status


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            grpc.StatusCode.UNIMPLEMENTED,
            "error: this server does not implement the grpc health protocol "
            "(grpc.health.v1.Health): why",
        ),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "timeout: health rpc did not complete within 2s"),
        (grpc.StatusCode.NOT_FOUND, "error: health rpc probe failed: why"),
    ],
)
def test_how_a_health_call_fails(code: grpc.StatusCode, message: str) -> None:
    nothing = aio.Metadata()
    assert checks.grpc_failure(aio.AioRpcError(code, nothing, nothing, "why"), "2s") == message


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (TimeoutError(), "i/o timeout"),
        (ConnectionRefusedError(), "connect: connection refused"),
        (OSError(113, "No route to host"), "No route to host"),
        (OSError("odd"), "odd"),
    ],
)
async def test_how_a_connection_fails(
    monkeypatch: pytest.MonkeyPatch, error: Exception, message: str
) -> None:
    asked: list[Any] = []

    async def fail(*arguments: Any) -> Any:
        asked.append(arguments)
        raise error

    monkeypatch.setattr(asyncio, "open_connection", fail)
    container = a_container(ports=[{"name": "web", "containerPort": 80}])
    action = msgspec.convert({"port": "web"}, TCPSocketAction)
    outcome = await checks.check_tcp(action, container, "10.0.0.1", 2)
    assert outcome == CheckResult(Outcome.FAILURE, f"dial tcp 10.0.0.1:80: {message}")
    action = msgspec.convert({"port": 81, "host": "h"}, TCPSocketAction)
    outcome = await checks.check_tcp(action, container, "10.0.0.1", 2)
    assert outcome == CheckResult(Outcome.FAILURE, f"dial tcp h:81: {message}")
    assert asked == [("10.0.0.1", 80), ("h", 81)]
