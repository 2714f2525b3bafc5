"""Lifecycle hooks: a command, a request, a sleep, and how their failures are worded."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import msgspec
import pytest

from moorage.api.containers import LifecycleHandler
from moorage.node.pods.hooks import HookError, Hooks, bounded
from moorage.node.probes.checks import HttpFailure
from moorage.node.runtime.engine import ExecResult
from moorage.wire.cri import CriError
from tests.clocks import FakeClock, settle
from tests.node.objects import a_container, a_pod


class Outside:
    """An engine and an HTTP client with one answer."""

    def __init__(self, answer: Any = None) -> None:
        self.answer = answer
        self.asked: list[Any] = []

    def _give(self, *asked: Any) -> Any:
        self.asked.append(asked)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def exec_sync(self, *asked: Any) -> Any:
        return self._give(*asked)

    async def get(self, action: Any, _container: Any, address: str, **how: Any) -> Any:
        return self._give(action.path, address, how)


async def run(handler: dict[str, Any], outside: Any, clock: Any = None, **how: Any) -> None:
    hooks = Hooks(outside, outside, clock)
    converted = msgspec.convert(handler, LifecycleHandler)
    await hooks.run(a_pod(), a_container(), "c1", converted, "10.0.0.5", **how)


EXEC = {"exec": {"command": ["go", "on"]}}
HTTP = {"httpGet": {"path": "/bye", "port": 80}}
IN_POD = 'for Container "app" in Pod "web_shop('


async def test_a_command_is_run_in_the_container() -> None:
    outside = Outside(ExecResult(b"", b"", 0))
    await run(EXEC, outside, within_s=9)
    await run(EXEC, outside)
    assert outside.asked == [("c1", ("go", "on"), 9), ("c1", ("go", "on"), 0)]


@pytest.mark.parametrize(
    ("handler", "answer", "beginning", "end"),
    [
        (EXEC, ExecResult(b"out", b"err", 3), f"Exec lifecycle hook ([go on]) {IN_POD}",
         " failed - error: command 'go on' exited with 3: err, message: \"outerr\""),
        (EXEC, CriError("ExecSync", grpc.StatusCode.UNKNOWN, "gone"),
         f"Exec lifecycle hook ([go on]) {IN_POD}",
         ' failed - error: rpc error: code = Unknown desc = gone, message: ""'),
        (HTTP, HttpFailure("refused"), f"HTTP lifecycle hook (/bye) {IN_POD}",
         " failed - error: refused"),
        (HTTP, ValueError("no such port"), f"HTTP lifecycle hook (/bye) {IN_POD}",
         " failed - error: no such port"),
        ({}, None, "Cannot run handler: it names no ", "exec, httpGet or sleep"),
    ],
)  # fmt: skip
async def test_a_failure_says_which_hook_of_which_container(
    handler: dict[str, Any], answer: Any, beginning: str, end: str
) -> None:
    with pytest.raises(HookError) as failure:
        await run(handler, Outside(answer))
    assert str(failure.value).startswith(beginning)
    assert str(failure.value).endswith(end)


async def test_a_failure_has_the_end_of_a_long_command_and_a_long_output() -> None:
    command = {"exec": {"command": ["sh", "-c", "x" * 1_000_000 + "; exit 1"]}}
    with pytest.raises(HookError) as failure:
        await run(command, Outside(ExecResult(b"o" * 9000, b"e" * 9000 + b"no space", 1)))
    text = str(failure.value)
    assert "; exit 1" in text
    assert "no space, message:" in text
    assert len(text) < 6000


async def test_any_answer_to_a_request_will_do() -> None:
    outside = Outside()
    await run(HTTP, outside)
    how = {"purpose": "lifecycle", "timeout_s": None}
    assert outside.asked == [("/bye", "10.0.0.5", how)]


async def test_a_sleep_takes_its_time() -> None:
    clock = FakeClock()
    task = asyncio.ensure_future(run({"sleep": {"seconds": 3}}, Outside(), clock))
    await settle()
    clock.advance(2)
    await settle()
    assert not task.done()
    clock.advance(1)
    await task


@pytest.mark.parametrize("is_quick", [True, False])
async def test_a_hook_is_waited_for_only_so_long(is_quick: bool) -> None:
    clock, gate = FakeClock(), asyncio.Event()

    async def wait() -> None:
        await gate.wait()

    hook = asyncio.ensure_future(wait())
    waiter = asyncio.ensure_future(bounded(clock, 5, hook))
    await settle()
    if is_quick:
        gate.set()
    else:
        clock.advance(5)
    assert await waiter is is_quick
    assert hook.done() is is_quick
    gate.set()
    await hook
    await settle()
    assert asyncio.all_tasks() == {asyncio.current_task()}
