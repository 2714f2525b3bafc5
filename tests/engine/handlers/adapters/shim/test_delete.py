"""The end of a shim's task against a shim that answers what the test wants."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from moorage.engine.handlers.adapters import AdapterError, Task
from moorage.engine.handlers.adapters.generated import shim_pb2 as pb
from moorage.engine.handlers.adapters.shim.delete import end_task, shut_down
from moorage.engine.handlers.adapters.shim.keeper import Record
from moorage.engine.handlers.adapters.shim.program import Address, ShimProgram
from moorage.engine.handlers.adapters.shim.service import ShimConnections
from moorage.engine.handlers.adapters.ttrpc import NOT_FOUND, RESPONSE, Frame, Framing
from moorage.linux.process import Identity, began
from tests.engine.handlers.programs import program

RUNNING = pb.StateResponse(status=pb.RUNNING)
STOPPED = pb.StateResponse(status=pb.STOPPED)
REFUSED = 13


class Case:
    """A shim on a socket: `replies` by method, a message or a code; `asked` in order."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.replies: dict[str, Any] = {
            "State": RUNNING, "Kill": pb.Empty(), "Wait": pb.WaitResponse(),
            "Delete": pb.DeleteResponse(), "Shutdown": pb.Empty(),
        }  # fmt: skip
        self.asked: list[str] = []
        self.requests: dict[str, bytes] = {}
        self.hangs_up_after = ""
        self.connections = ShimConnections()
        self.program = ShimProgram(
            program(root / "bin", "shim", f'echo "$@" >> {root}/deleted'), root / "ev", "/bin"
        )
        self.record = Record(Address(str(root / "s")))

    def task(self, *, is_sandbox: bool = False) -> Task:
        return Task(id="t1", bundle=self.root, sandbox_id="t1" if is_sandbox else "s1")

    @property
    def was_deleted_by_program(self) -> bool:
        path = self.root / "deleted"
        return path.exists() and path.read_text().split()[-1] == "delete"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        framing = Framing()
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                for frame in framing.feed(data):
                    request = pb.Request.FromString(frame.content)
                    self.asked.append(request.method)
                    self.requests[request.method] = request.payload
                    writer.write(self._response(frame, request.method))
                    if request.method == self.hangs_up_after:
                        await writer.drain()
                        writer.close()
                        return
        writer.close()

    def _response(self, frame: Frame, method: str) -> bytes:
        reply = self.replies[method]
        if isinstance(reply, int):
            reply = reply, f"{method} refused"
        if isinstance(reply, tuple):
            answer = pb.Response(status=pb.CallStatus(code=reply[0], message=reply[1]))
        else:
            answer = pb.Response(payload=reply.SerializeToString())
        return Frame(frame.stream, RESPONSE, answer.SerializeToString()).encode()


@pytest.fixture
async def case(tmp_path: Path) -> AsyncIterator[Case]:
    case = Case(tmp_path)
    server = await asyncio.start_unix_server(case.serve, tmp_path / "s")
    yield case
    case.connections.close()
    server.close()
    await server.wait_closed()


async def end(case: Case, *, is_sandbox: bool = False) -> None:
    await end_task(case.task(is_sandbox=is_sandbox), case.record, case.connections, case.program)


async def test_a_running_task_is_killed_waited_for_and_deleted(case: Case) -> None:
    await end(case)
    assert case.asked == ["State", "Kill", "Wait", "Delete"]
    kill = pb.KillRequest.FromString(case.requests["Kill"])
    assert (kill.id, kill.signal, kill.all) == ("t1", 9, True)
    assert pb.DeleteRequest.FromString(case.requests["Delete"]).id == "t1"
    assert not case.was_deleted_by_program


async def test_a_task_that_has_ended_is_only_deleted(case: Case) -> None:
    case.replies["State"] = STOPPED
    await end(case)
    assert case.asked == ["State", "Delete"]


async def test_a_task_that_ends_while_it_is_killed_is_deleted(case: Case) -> None:
    case.replies["Kill"] = NOT_FOUND
    await end(case)
    assert case.asked == ["State", "Kill", "Delete"]


@pytest.mark.parametrize("method", ["State", "Wait", "Delete"])
async def test_a_task_that_the_shim_does_not_know_has_ended(case: Case, method: str) -> None:
    case.replies[method] = NOT_FOUND
    await end(case)
    assert case.asked[-1] == method
    assert not case.was_deleted_by_program


async def test_a_shim_that_has_gone_is_cleared_up_after(case: Case) -> None:
    case.hangs_up_after = "Kill"
    await end(case)
    assert case.was_deleted_by_program


async def test_a_shim_that_refuses_keeps_its_container(case: Case) -> None:
    case.replies["Delete"] = REFUSED
    with pytest.raises(AdapterError, match="Delete refused"):
        await end(case)
    assert not case.was_deleted_by_program


@pytest.mark.parametrize("is_sandbox", [False, True])
async def test_a_sandbox_takes_a_shim_that_refuses_along_and_a_container_does_not(
    case: Case, is_sandbox: bool
) -> None:
    shim = await asyncio.create_subprocess_exec("sleep", "1000")
    try:
        ticks = began(shim.pid)
        assert ticks is not None
        case.record = Record(case.record.address, Identity(shim.pid, ticks))
        case.replies["Delete"] = REFUSED
        if is_sandbox:
            await end(case, is_sandbox=True)
            assert await asyncio.wait_for(shim.wait(), 5) in (-9, 255)
            assert case.was_deleted_by_program
        else:
            with pytest.raises(AdapterError, match="Delete refused"):
                await end(case)
            assert shim.returncode is None
            assert not case.was_deleted_by_program
    finally:
        with contextlib.suppress(ProcessLookupError):
            shim.kill()
        await shim.wait()


@pytest.mark.parametrize("method", ["State", "Kill", "Delete"])
async def test_a_task_whose_files_are_gone_is_gone(case: Case, method: str) -> None:
    """What Kata's shim answers after its hypervisor was killed."""
    case.replies[method] = REFUSED, "open /run/vc/sbs/t1: no such file or directory"
    await end(case)
    assert case.asked[-1] == method
    assert case.was_deleted_by_program


async def test_the_shim_of_a_sandbox_that_stays_after_its_last_task_is_ended(case: Case) -> None:
    shim = await asyncio.create_subprocess_exec("sleep", "1000")
    try:
        ticks = began(shim.pid)
        assert ticks is not None
        record = Record(case.record.address, Identity(shim.pid, ticks))
        case.replies["Shutdown"] = REFUSED
        sandbox = case.task(is_sandbox=True)
        await shut_down(sandbox, record, case.connections, is_last=True)
        assert await asyncio.wait_for(shim.wait(), 5) in (-9, 255)
    finally:
        with contextlib.suppress(ProcessLookupError):
            shim.kill()
        await shim.wait()


async def test_without_a_known_process_a_sandboxes_refusal_stays_one(case: Case) -> None:
    case.replies["Delete"] = REFUSED
    with pytest.raises(AdapterError, match="Delete refused"):
        await end(case, is_sandbox=True)


@pytest.mark.parametrize("is_last", [False, True])
async def test_a_shim_is_let_go_and_waited_for_when_it_was_the_last_task(
    case: Case, is_last: bool
) -> None:
    case.hangs_up_after = "Shutdown" if is_last else ""
    await asyncio.wait_for(
        shut_down(case.task(), case.record, case.connections, is_last=is_last), 5
    )
    assert case.asked == ["Shutdown"]
    assert pb.ShutdownRequest.FromString(case.requests["Shutdown"]).id == "t1"
    # A call to one that has gone is known to be lost, without another connection.
    client = case.connections._clients[case.record.address.path]
    assert client.is_lost is is_last


async def test_a_shim_that_is_gone_need_not_be_shut_down(case: Case) -> None:
    gone = Record(Address(str(case.root / "absent")))
    await shut_down(case.task(), gone, case.connections, is_last=True)


async def test_closed_connections_are_seen_by_the_shim(case: Case) -> None:
    ended = asyncio.Event()
    serve = case.serve

    async def watched(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await serve(reader, writer)
        ended.set()

    path = case.root / "s2"
    server = await asyncio.start_unix_server(watched, path)
    connections = ShimConnections()
    request = pb.StateRequest(id="t1")
    await connections.call(Address(str(path)), "State", request, pb.StateResponse)
    assert not ended.is_set()
    connections.close()
    await asyncio.wait_for(ended.wait(), 5)
    server.close()
    await server.wait_closed()
