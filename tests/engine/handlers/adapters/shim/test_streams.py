"""The streams and calls of one process of a shim, also of one that has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from moorage.engine.handlers.adapters import AdapterError, TaskNotFoundError, UnsupportedError
from moorage.engine.handlers.adapters.fifo_streams import ProcessOutput, make_pipes
from moorage.engine.handlers.adapters.generated import shim_pb2 as pb
from moorage.engine.handlers.adapters.shim.keeper import Record
from moorage.engine.handlers.adapters.shim.program import Address
from moorage.engine.handlers.adapters.shim.service import ShimCalls, ShimConnections, ShimLostError
from moorage.engine.handlers.adapters.shim.streams import AttachedStreams, ShimProcess
from moorage.engine.handlers.adapters.ttrpc import (
    NOT_FOUND,
    UNIMPLEMENTED,
    ConnectionLostError,
    TtrpcClient,
    TtrpcError,
)

ADDRESS = Address("/run/s.sock", 3)


class Shims:
    """Answers calls from a table; errors are raised. The calls are in `calls`."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.calls: list[tuple[str, Any, float | None]] = []

    async def call(
        self, address: Address, method: str, request: Any, _reply: Any, *,
        deadline_s: float | None = 30.0,
    ) -> Any:  # fmt: skip
        assert address == ADDRESS
        self.calls.append((method, request, deadline_s))
        answer = self.answers.get(method)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def order(self, address: Address, method: str, request: Any) -> None:
        await self.call(address, method, request, None)

    @property
    def methods(self) -> list[str]:
        return [method for method, _, _ in self.calls]


def calls_of(shims: Shims, exec_id: str = "e") -> ShimCalls:
    stand_in: Any = shims
    return ShimCalls(stand_in, Record(ADDRESS), "t", exec_id)


GONE = (TaskNotFoundError("gone"), ShimLostError("gone"))


async def test_each_call_names_the_task_and_the_process() -> None:
    shims = Shims(Wait=pb.WaitResponse(exit_status=3))
    calls = calls_of(shims)
    await calls.end_input()
    await calls.resize(80, 24)
    assert await calls.wait() == 3
    assert await calls.wait(2.0) == 3
    await calls.kill()
    assert shims.calls == [
        ("CloseIO", pb.CloseInputRequest(id="t", exec_id="e", stdin=True), 30.0),
        ("ResizePty", pb.ResizeRequest(id="t", exec_id="e", width=80, height=24), 30.0),
        ("Wait", pb.WaitRequest(id="t", exec_id="e"), None),
        ("Wait", pb.WaitRequest(id="t", exec_id="e"), 2.0),
        ("Kill", pb.KillRequest(id="t", exec_id="e", signal=9), 30.0),
    ]


@pytest.mark.parametrize("error", GONE, ids=lambda error: type(error).__name__)
async def test_a_process_that_has_gone_is_killed_and_forgotten_without_an_error(
    error: Exception,
) -> None:
    await calls_of(Shims(Kill=error)).kill()
    for answers in ({"State": error}, {"State": pb.StateResponse(), "Delete": error}):
        await calls_of(Shims(**answers)).forget()
    with pytest.raises(AdapterError):
        await calls_of(Shims(Kill=AdapterError("refused"))).kill()


@pytest.mark.parametrize(
    ("status", "methods"),
    [
        (pb.RUNNING, ["State", "Kill", "Wait", "Delete"]),
        (pb.CREATED, ["State", "Delete"]),
        (pb.STOPPED, ["State", "Delete"]),
    ],
)
async def test_only_what_runs_is_killed_before_it_is_forgotten(
    status: Any, methods: list[str]
) -> None:
    shims = Shims(State=pb.StateResponse(status=status), Wait=pb.WaitResponse())
    await calls_of(shims).forget()
    assert shims.methods == methods
    assert shims.calls[0][1] == pb.StateRequest(id="t", exec_id="e")
    assert shims.calls[-1][1] == pb.DeleteRequest(id="t", exec_id="e")
    if status == pb.RUNNING:
        assert shims.calls[2][2] == 10.0


class Calls:
    """The calls about one process; each raises what a test wants."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.error: Exception | None = None

    async def _call(self, name: str) -> int:
        self.made.append(name)
        if self.error is not None:
            raise self.error
        return 7

    async def end_input(self) -> None:
        await self._call("end input")

    async def resize(self, width: int, height: int) -> None:
        await self._call(f"resize {width} {height}")

    async def wait(self) -> int:
        return await self._call("wait")

    async def kill(self) -> None:
        await self._call("kill")

    async def forget(self) -> None:
        await self._call("forget")


@pytest.fixture
def pipes(tmp_path: Path) -> dict[int, Path]:
    (tmp_path / "p").mkdir()
    return make_pipes(tmp_path / "p", has_stdin=True, has_stderr=True)


@pytest.fixture
async def output(pipes: dict[int, Path]) -> ProcessOutput:
    return ProcessOutput({key: path for key, path in pipes.items() if key}, None)


async def test_without_an_input_nothing_is_written_or_ended(output: ProcessOutput) -> None:
    calls = Calls()
    streams = AttachedStreams(output, None, calls, ends_input=True)
    async with streams:
        with pytest.raises(BrokenPipeError, match="without an input"):
            await streams.write(b"x")
        await streams.end_input()
    assert calls.made == []
    output.close()


@pytest.mark.parametrize(("ends_input", "made"), [(True, ["end input"]), (False, [])])
async def test_leaving_ends_the_input_where_that_was_asked_for(
    output: ProcessOutput, pipes: dict[int, Path], ends_input: bool, made: list[str]
) -> None:
    calls = Calls()
    async with AttachedStreams(output, pipes[0], calls, ends_input=ends_input):
        assert len(output._queues) == 1
    assert calls.made == made
    assert not output._queues
    output.close()


@pytest.mark.parametrize("error", GONE, ids=lambda error: type(error).__name__)
async def test_a_process_that_has_ended_has_no_input_left_to_end(
    output: ProcessOutput, pipes: dict[int, Path], error: Exception
) -> None:
    calls = Calls()
    calls.error = error
    await AttachedStreams(output, pipes[0], calls).end_input()
    calls.error = AdapterError("refused")
    with pytest.raises(AdapterError, match="refused"):
        await AttachedStreams(output, pipes[0], calls).end_input()
    output.close()


@pytest.mark.parametrize("has_terminal", [True, False])
async def test_only_a_terminal_has_a_size(output: ProcessOutput, has_terminal: bool) -> None:
    calls = Calls()
    await AttachedStreams(output, None, calls, has_terminal=has_terminal).resize(80, 24)
    assert calls.made == (["resize 80 24"] if has_terminal else [])
    output.close()


async def test_leaving_a_process_forgets_it_and_removes_its_pipes(
    output: ProcessOutput, pipes: dict[int, Path], tmp_path: Path
) -> None:
    calls = Calls()
    process = ShimProcess(output, pipes[0], calls, tmp_path / "p", has_terminal=False)
    async with process:
        assert await process.wait() == 7
        await process.kill()
    assert calls.made == ["wait", "kill", "forget"]
    assert not (tmp_path / "p").exists()


async def test_lost_exit_status_is_an_error_and_pipes_are_removed(
    output: ProcessOutput, pipes: dict[int, Path], tmp_path: Path
) -> None:
    calls = Calls()
    process = ShimProcess(output, pipes[0], calls, tmp_path / "p", has_terminal=False)
    calls.error = ShimLostError("no shim")
    with pytest.raises(AdapterError, match="the exit status of the process is lost: no shim"):
        await process.wait()
    with pytest.raises(ShimLostError):
        await process.__aexit__()
    assert not (tmp_path / "p").exists()


class Client:
    """A connection that ends each call in one way."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error
        self.is_lost = False
        self.lost = asyncio.Event()
        self.asked: list[Any] = []

    async def call(self, *asked: Any, deadline_s: float | None) -> str:
        self.asked.append((*asked, deadline_s))
        if self.error is not None:
            raise self.error
        return "reply"

    def close(self) -> None:
        self.is_lost = True


def connected(monkeypatch: pytest.MonkeyPatch, make: Callable[[], Client]) -> list[Client]:
    made: list[Client] = []

    async def connect(path: str, *, deadline_s: float) -> Client:
        assert (path, deadline_s) == (ADDRESS.path, 5.0)
        made.append(make())
        return made[-1]

    monkeypatch.setattr(TtrpcClient, "connect", connect)
    return made


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (ConnectionLostError("ended"), ShimLostError, "the shim does not answer: ended"),
        (TtrpcError(NOT_FOUND, "no\n such"), TaskNotFoundError, "no such"),
        (TtrpcError(UNIMPLEMENTED, "no way"), UnsupportedError, "no way"),
        (TtrpcError(2, "refused"), AdapterError, "refused"),
        (TimeoutError(), AdapterError, "the shim's Kill took longer than 30 s"),
    ],
)
async def test_failed_call_raises_the_error_of_its_kind(
    monkeypatch: pytest.MonkeyPatch, error: Exception, kind: type[AdapterError], message: str
) -> None:
    connected(monkeypatch, lambda: Client(error))
    with pytest.raises(AdapterError, match=message) as failed:
        await ShimConnections().order(ADDRESS, "Kill", pb.KillRequest())
    assert type(failed.value) is kind


async def test_a_connection_is_shared_until_it_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    made = connected(monkeypatch, lambda: Client(None))
    shims = ShimConnections()
    for deadline_s in (2.0, None):
        await shims.call(ADDRESS, "State", pb.StateRequest(), pb.Empty, deadline_s=deadline_s)
    assert len(made) == 1
    assert made[0].asked == [
        (ADDRESS.service, "State", pb.StateRequest(), pb.Empty, deadline_s)
        for deadline_s in (2.0, None)
    ]
    made[0].is_lost = True
    await shims.order(ADDRESS, "State", pb.StateRequest(), deadline_s=4.0)
    assert made[1].asked == [(ADDRESS.service, "State", pb.StateRequest(), pb.Empty, 4.0)]
    await shims.gone(Address("/other.sock", 3), 20)
    await shims.gone(ADDRESS, 0.001)
    made[1].lost.set()
    await shims.gone(ADDRESS, 20)
    shims.close()
    assert made[1].is_lost
    assert shims._clients == {}


def test_the_codes_of_ttrpc_are_those_of_grpc() -> None:
    codes = (grpc.StatusCode.NOT_FOUND.value[0], grpc.StatusCode.UNIMPLEMENTED.value[0])
    assert codes == (NOT_FOUND, UNIMPLEMENTED)
