"""Exec and attach as SPDY clients use them."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress

import pytest

from moorage.engine.errors import PreconditionError
from moorage.engine.handlers.adapters import AdapterError
from moorage.wire.cri import pb
from moorage.wire.streaming.connection import Deadlines
from moorage.wire.streaming.dial import Refused, Upgraded
from moorage.wire.streaming.spdy import SpdyError
from moorage.wire.streaming.spdy.frames import FrameType, control_frame
from moorage.wire.streaming.upgrade import PROTOCOL_VERSION
from tests.clocks import settle
from tests.engine.streams.callers import QUICK, V4, asking, serving, spdy
from tests.engine.streams.targets import DEADLINE_S, FakeProcess, FakeTarget, echo, says, silent

OUTPUTS = pb.ExecRequest(container_id="c1", cmd=["x"], stdout=True, stderr=True)
WITH_INPUT = pb.ExecRequest(container_id="c1", cmd=["cat"], stdin=True, stdout=True)
TERMINAL = pb.ExecRequest(container_id="c1", cmd=["sh"], stdin=True, stdout=True, tty=True)
SUCCESS = {"metadata": {}, "status": "Success"}


async def killed(process: FakeProcess) -> None:
    """Return once the process has been left; it must have been killed."""
    async with asyncio.timeout(DEADLINE_S):
        await process.closed.wait()
    assert process.was_killed


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_output_comes_apart_and_then_success(method: str) -> None:
    target = FakeTarget(says(b"to out", b"to err"))
    async with (
        serving(target) as server,
        spdy(server.exec_url(OUTPUTS), "error", "stdout", "stderr", method=method) as caller,
    ):
        received = await caller.all()
    assert (received["stdout"], received["stderr"]) == (b"to out", b"to err")
    assert json.loads(received["error"]) == SUCCESS
    assert target.requests == [OUTPUTS]


async def test_the_streams_may_be_opened_in_any_order() -> None:
    async with (
        serving(FakeTarget(says(b"x"))) as server,
        spdy(server.exec_url(OUTPUTS), "stderr", "stdout", "error") as caller,
    ):
        assert (await caller.all())["stdout"] == b"x"


async def test_exit_code_is_reported_as_a_cause() -> None:
    async with (
        serving(FakeTarget(says(code=3))) as server,
        spdy(server.exec_url(OUTPUTS), "error", "stdout", "stderr") as caller,
    ):
        status = json.loads((await caller.all())["error"])
    assert status["status"] == "Failure"
    assert status["reason"] == "NonZeroExitCode"
    assert status["details"]["causes"] == [{"reason": "ExitCode", "message": "3"}]


@pytest.mark.parametrize(
    "error",
    [PreconditionError("container c1\nis not running"), AdapterError("no such file: x"),
     FileNotFoundError("gone")],
    ids=["the engine's", "the runtime's", "the system's"],
)  # fmt: skip
async def test_failed_exec_is_an_internal_error_in_one_line(error: Exception) -> None:
    async with (
        serving(FakeTarget(error=error)) as server,
        spdy(server.exec_url(OUTPUTS), "error", "stdout", "stderr") as caller,
    ):
        status = json.loads((await caller.all())["error"])
    assert (status["status"], status["reason"], status["code"]) == ("Failure", "InternalError", 500)
    assert status["message"].endswith(" ".join(str(error).split()))


@pytest.mark.parametrize("version", ["v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io"])
async def test_old_versions_get_text_for_failures_and_nothing_for_success(version: str) -> None:
    target = FakeTarget(says(code=2))
    async with serving(target) as server:
        names = ("error", "stdout", "stderr")
        async with spdy(server.exec_url(OUTPUTS), *names, versions=[version]) as caller:
            text = (await caller.all())["error"]
        assert text == b"command terminated with non-zero exit code: 2"
        target.program = says(b"fine")
        async with spdy(server.exec_url(OUTPUTS), *names, versions=[version]) as caller:
            assert (await caller.all())["error"] == b""


async def test_the_first_version_offered_that_is_spoken_is_taken() -> None:
    async with serving(FakeTarget(says())) as server:
        offered = ["v9.channel.k8s.io", "v3.channel.k8s.io, v4.channel.k8s.io"]
        async with asking(server.exec_url(OUTPUTS), offered) as answer:
            assert isinstance(answer, Upgraded)
            assert answer.head.headers[PROTOCOL_VERSION] == "v3.channel.k8s.io"


async def test_a_client_that_offers_no_version_speaks_the_first_one() -> None:
    async with (
        serving(FakeTarget(says(b"x", code=1))) as server,
        spdy(server.exec_url(OUTPUTS), "error", "stdout", "stderr", versions=[]) as caller,
    ):
        assert PROTOCOL_VERSION not in caller.answer.head.headers
        assert (await caller.all())["error"].startswith(b"command terminated")


async def test_unknown_versions_are_refused_with_the_supported_ones() -> None:
    async with (
        serving(FakeTarget(says())) as server,
        asking(server.exec_url(OUTPUTS), ["v9.channel.k8s.io"]) as answer,
    ):
        assert isinstance(answer, Refused)
        assert answer.head.status == 403
        assert V4 in answer.head.headers.getall("X-Accepted-Stream-Protocol-Versions")
        assert b"v9.channel.k8s.io" in answer.body


async def test_input_reaches_the_process_and_so_does_its_end() -> None:
    async with (
        serving(FakeTarget(echo)) as server,
        spdy(server.exec_url(WITH_INPUT), "error", "stdin", "stdout") as caller,
    ):
        await caller.write("stdin", b"hello ")
        await caller.until("stdout", b"hello ")
        await caller.write("stdin", b"world")
        await caller.end("stdin")
        received = await caller.all()
    assert received["stdout"] == b"hello world"
    assert json.loads(received["error"]) == SUCCESS


async def test_a_terminal_is_resized_and_nonsense_in_between_passed_over() -> None:
    target = FakeTarget(echo)
    async with (
        serving(target) as server,
        spdy(server.exec_url(TERMINAL), "error", "stdin", "stdout", "resize") as caller,
    ):
        for piece in (b'{"Width":80,"Hei', b'ght":24}\n', b"]{}", b'{"Width":100,"Height":50}'):
            await caller.write("resize", piece)
        await target.started.wait()
        await target.process.until_sized((100, 50))
        await caller.end("stdin")
        await caller.all()


async def test_sizes_arrive_behind_input_that_is_no_longer_read() -> None:
    async def closes_input(process: FakeProcess) -> int:
        process.stdin.discard()
        await process.until_sized((80, 24))
        return 0

    async with (
        serving(FakeTarget(closes_input)) as server,
        spdy(server.exec_url(TERMINAL), "error", "stdin", "stdout", "resize") as caller,
    ):
        await caller.write("stdin", b"x" * (2 << 20))
        await caller.write("resize", b'{"Width":80,"Height":24}')
        assert json.loads((await caller.all())["error"]) == SUCCESS


async def test_a_process_that_closes_its_output_may_still_read() -> None:
    async def reads_on(process: FakeProcess) -> int:
        await process._output.put(None)
        received = b""
        while data := await process.stdin.read():
            received += data
        return len(received)

    async with (
        serving(FakeTarget(reads_on)) as server,
        spdy(server.exec_url(WITH_INPUT), "error", "stdin", "stdout") as caller,
    ):
        await caller.write("stdin", b"12345")
        await caller.end("stdin")
        status = json.loads((await caller.all())["error"])
    assert status["details"]["causes"][0]["message"] == "5"


async def test_output_that_a_descendant_keeps_open_does_not_hold_the_end_up() -> None:
    target = FakeTarget(says(b"done", code=4), keeps_output_open=True)
    async with (
        serving(target, QUICK) as server,
        spdy(server.exec_url(OUTPUTS), "error", "stdout", "stderr") as caller,
    ):
        received = await caller.all()
    assert received["stdout"] == b"done"
    assert b'"4"' in received["error"]


async def test_output_after_the_exit_is_copied_while_the_drain_lasts() -> None:
    target = FakeTarget(says(b"done"), keeps_output_open=True)
    async with (
        serving(target) as server,
        spdy(server.exec_url(OUTPUTS), "error", "stdout", "stderr") as caller,
    ):
        await caller.until("stdout", b"done")
        await target.process.wait()
        await settle()
        await target.process.out(b", and more")
        await target.process._output.put(None)
        received = await caller.all()
    assert received["stdout"] == b"done, and more"


async def test_slow_client_gets_all_output_of_an_ended_process() -> None:
    async def much(process: FakeProcess) -> int:
        for _ in range(64):
            await process.out(b"x" * (1 << 20))
        return 0

    target = FakeTarget(much, keeps_output_open=True)
    deadlines = Deadlines(drain_s=0.05, close_s=1.0)
    async with (
        serving(target, deadlines) as server,
        spdy(server.exec_url(OUTPUTS), "error", "stdout", "stderr") as caller,
    ):
        # The client's silence is longer than the patience with the process's.
        await asyncio.sleep(0.3)
        received = await caller.all()
    assert len(received["stdout"]) == 64 << 20


async def test_a_client_that_does_not_read_makes_the_process_wait() -> None:
    sent = 0

    async def floods(process: FakeProcess) -> int:
        nonlocal sent
        while True:
            await process.out(b"x" * (1 << 20))
            sent += 1

    async with (
        serving(FakeTarget(floods)) as server,
        spdy(server.exec_url(OUTPUTS), "error", "stdout", "stderr"),
    ):
        before = -1
        while sent != before:
            before = sent
            await asyncio.sleep(0.1)
        assert sent < 32


@pytest.mark.slow
async def test_a_process_that_does_not_read_makes_the_client_wait() -> None:
    target = FakeTarget(silent)
    async with (
        serving(target) as server,
        spdy(server.exec_url(WITH_INPUT), "error", "stdin", "stdout") as caller,
    ):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await caller.write("stdin", b"x" * (64 << 20))


async def test_the_process_is_killed_when_its_client_goes() -> None:
    target = FakeTarget(silent)
    async with serving(target) as server:
        async with spdy(server.exec_url(WITH_INPUT), "error", "stdin", "stdout") as caller:
            await target.started.wait()
            caller.answer.connection.abort()
        await killed(target.process)


async def test_the_process_is_killed_when_its_input_is_reset() -> None:
    target = FakeTarget(silent)
    async with (
        serving(target) as server,
        spdy(server.exec_url(WITH_INPUT), "error", "stdin", "stdout") as caller,
    ):
        await target.started.wait()
        reset = caller.streams["stdin"].to_bytes(4, "big") + b"\0\0\0\5"
        await caller.answer.connection.write(control_frame(FrameType.RST_STREAM, reset))
        await killed(target.process)


async def test_leaving_the_server_kills_what_it_runs() -> None:
    target = FakeTarget(silent)
    async with serving(target) as server:
        caller = spdy(server.exec_url(OUTPUTS), "error", "stdout", "stderr")
        await caller.__aenter__()
        await target.started.wait()
    await killed(target.process)
    await caller.__aexit__(None, None, None)


@pytest.mark.slow
@pytest.mark.parametrize("names", [(), ("error",), ("error", "stdout")], ids=lambda n: len(n))
async def test_a_client_that_does_not_open_all_streams_is_dropped(names: tuple[str, ...]) -> None:
    target = FakeTarget(says())
    async with (
        serving(target, QUICK) as server,
        spdy(server.exec_url(OUTPUTS), *names) as caller,
    ):
        async with asyncio.timeout(DEADLINE_S):
            with suppress(ConnectionResetError):
                assert [chunk async for chunk in caller.session.data()] == []
    assert not target.requests


@pytest.mark.parametrize("names", [(), ("error",), ("error", "stdout", "stderr")])
async def test_a_client_may_go_at_any_point_of_opening(names: tuple[str, ...]) -> None:
    target = FakeTarget(silent)
    async with serving(target) as server:
        async with spdy(server.exec_url(OUTPUTS), *names) as caller:
            caller.answer.connection.abort()
        # The next one is served all the same.
        target.program = says(b"next")
        async with spdy(server.exec_url(OUTPUTS), "error", "stdout", "stderr") as caller:
            assert (await caller.all())["stdout"] == b"next"


@pytest.mark.parametrize("name", ["stdout", "stdin", "nonsense", ""])
async def test_a_stream_twice_or_not_asked_for_is_refused(name: str) -> None:
    async with (
        serving(FakeTarget(silent)) as server,
        spdy(server.exec_url(OUTPUTS), "error", "stdout") as caller,
    ):
        with pytest.raises(SpdyError, match="refused with status 3"):
            await caller.open(name)


@pytest.mark.slow
@pytest.mark.parametrize(
    "wire",
    [
        b"\x80\x02\0\1\0\0\0\0",
        b"\x80\x03\0\1\1\0\0\x0a" + b"\0\0\0\2" + b"\0" * 6,
        b"\x80\x03\0\1\1\0\0\x0e" + b"\0\0\0\x63" + b"\0" * 6 + b"junk",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
    ids=["another version", "a server's number", "headers that are none", "text"],
)
async def test_a_client_that_breaks_the_rules_is_dropped_and_its_process_killed(
    wire: bytes,
) -> None:
    target = FakeTarget(silent)
    async with (
        serving(target, Deadlines(idle_s=1.0, close_s=0.2)) as server,
        spdy(server.exec_url(WITH_INPUT), "error", "stdin", "stdout") as caller,
    ):
        await target.started.wait()
        await caller.answer.connection.write(wire)
        await killed(target.process)


async def test_attach_carries_both_ways_and_leaves_the_container_alone() -> None:
    target = FakeTarget(echo)
    asked = pb.AttachRequest(container_id="c1", stdin=True, stdout=True, stderr=True)
    async with serving(target) as server:
        async with spdy(server.attach_url(asked), "error", "stdin", "stdout", "stderr") as caller:
            await caller.write("stdin", b"hi")
            await caller.until("stdout", b"hi")
            caller.answer.connection.abort()
        async with asyncio.timeout(DEADLINE_S):
            await target.process.closed.wait()
        assert not target.process.was_killed
        assert not target.process.stdin.has_ended
        target.process.stdin.end()


async def test_attach_ends_with_success_when_the_container_does() -> None:
    asked = pb.AttachRequest(container_id="c1", stdout=True)
    async with (
        serving(FakeTarget(says(b"last words", code=9))) as server,
        spdy(server.attach_url(asked), "error", "stdout") as caller,
    ):
        received = await caller.all()
    assert received["stdout"] == b"last words"
    assert json.loads(received["error"]) == SUCCESS


async def test_failed_attach_is_reported_to_the_client() -> None:
    asked = pb.AttachRequest(container_id="c1", stdout=True)
    async with (
        serving(FakeTarget(error=AdapterError("no such task"))) as server,
        spdy(server.attach_url(asked), "error", "stdout") as caller,
    ):
        received = await caller.all()
    status = json.loads(received["error"])
    assert (status["status"], status["code"]) == ("Failure", 500)
    assert "attaching to container: no such task" in status["message"]


async def test_a_silent_session_ends_after_its_time() -> None:
    target = FakeTarget(silent)
    async with (
        serving(target, Deadlines(idle_s=0.2, close_s=0.2)) as server,
        spdy(server.exec_url(OUTPUTS), "error", "stdout", "stderr"),
    ):
        await target.started.wait()
        await killed(target.process)
