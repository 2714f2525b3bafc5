"""Handler files that change while pods run: it counts at once, and touches nothing that runs."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from moorage.wire.cri import CriError, engine_pb, pb
from tests.engine.whole.engines import Caller, RunningEngine, eventually

pytestmark = [pytest.mark.runtime]

SLEEP = ("sleep", "1000")
# Says in a file that it was asked to create something, then does it.
_COUNTING = 'case "$*" in *" create "*) echo >>"$(dirname "$0")/%s.asked";; esac; exec runc "$@"'


def _runtime(engine: RunningEngine, name: str) -> str:
    return str(engine.program(f"fake_{name}", _COUNTING % name))


def _asked(engine: RunningEngine, name: str) -> int:
    file = engine.root / "bin" / f"{name}.asked"
    return file.read_text().count("\n") if file.exists() else 0


async def _handlers(caller: Caller) -> dict[str, str]:
    """Available handler → its program, by a watch's first message; under "", what is wrong."""
    watch = caller.cri.engine.WatchHandlers(engine_pb.WatchHandlersRequest())
    try:
        message: Any = await watch.read()
    finally:
        watch.cancel()
    by_name = {
        handler.name: handler.program for handler in message.handlers if handler.is_available
    }
    return {**by_name, "": " ".join(message.complaints)}


async def _until_program(caller: Caller, handler: str, program: str | None) -> None:
    async def is_so() -> bool:
        return (await _handlers(caller)).get(handler) == program

    await eventually(is_so, f"handler {handler} with {program}", 30)


async def test_a_handlers_file_counts_from_the_moment_it_is_written(
    caller: Caller, engine: RunningEngine
) -> None:
    first, second = _runtime(engine, "first"), _runtime(engine, "second")
    file = engine.define("changing", first)
    await _until_program(caller, "changing", first)
    old = await caller.run_pod("changing")
    main = await caller.run(old, *SLEEP)
    engine.define("changing", second)
    await _until_program(caller, "changing", second)
    new = await caller.run_pod("changing")
    await caller.run(new, *SLEEP)
    # A pod keeps what its handler meant when it was made.
    await caller.run(old, *SLEEP, name="other")
    assert (_asked(engine, "first"), _asked(engine, "second")) == (2, 1)

    file.write_text('adapter = "oci"\nbinnary = "runc"\n')

    async def is_complained_of() -> bool:
        return "binnary" in (await _handlers(caller))[""]

    await eventually(is_complained_of, "the complaint", 5)
    assert (await _handlers(caller))["changing"] == second

    file.unlink()
    await _until_program(caller, "changing", None)
    with pytest.raises(CriError, match="no runtime for") as raised:
        await caller.run_pod("changing")
    assert raised.value.code is grpc.StatusCode.UNKNOWN
    assert (await caller.exec(main, "echo", "on")).stdout == b"on\n"
    await caller.stop(main)
    assert (await caller.status(main)).exit_code == 137
    await caller.remove_pod(old)
    await caller.restart()
    assert (await caller.pods())[new].state == pb.SANDBOX_READY
    await caller.remove_pod(new)


async def test_pods_start_while_handlers_change(caller: Caller, engine: RunningEngine) -> None:
    programs = [_runtime(engine, name) for name in ("third", "fourth")]
    engine.define("busy", programs[0])
    await _until_program(caller, "busy", programs[0])

    async def change() -> None:
        for number in range(12):
            engine.define("busy", programs[number % 2])
            engine.define(f"more-{number}", programs[0])
            await asyncio.sleep(0.05)

    async def load() -> None:
        for _ in range(4):
            pod = await caller.run_pod("busy")
            main = await caller.run(pod, *SLEEP)
            assert (await caller.exec(main, "true")).exit_code == 0
            await caller.remove_pod(pod)

    await asyncio.gather(change(), load(), load(), load())
    made = _asked(engine, "third") + _asked(engine, "fourth")
    assert made == 12
