"""Carrier without an engine: scripted handlers, for tests of what is done with results."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from moorage.runtimes.probing import (
    CarrierError,
    Outcome,
    ProbeContainer,
    ProbeRefusedError,
    ProbeResult,
    RunningProbe,
)

PLAIN_OUTPUT = (
    "== /proc/version\nLinux version 6.1.0\n== /proc/sys/kernel/random/boot_id\nhost\n"
    "== results\ngetpid 0000000000000001\n"
)
_WORK_OUTPUT = "== results\nwork 0000000000000064\n"
_PLAIN_COMMAND = "/probe/facts"


class _FakeProbe:
    cgroup = ""
    start_s = 0.1

    async def exec(self, command: Sequence[str], *, deadline_s: float) -> ProbeResult:
        del command, deadline_s
        return ProbeResult(outcome=Outcome.ENDED, exit_code=0, output=PLAIN_OUTPUT)

    async def resize(self, *, cpu_millis: int, memory_bytes: int, deadline_s: float) -> ProbeResult:
        del cpu_millis, memory_bytes, deadline_s
        return ProbeResult(outcome=Outcome.ENDED, exit_code=0)

    async def checkpoint(self, *, deadline_s: float) -> ProbeResult:
        del deadline_s
        return ProbeResult(outcome=Outcome.REFUSED, error="no")

    async def fetch(self, port: int, *, deadline_s: float) -> ProbeResult:
        del port, deadline_s
        return ProbeResult(outcome=Outcome.ENDED, exit_code=0, output="moorage\n")

    async def ended(self, *, deadline_s: float) -> ProbeResult:
        del deadline_s
        return ProbeResult(outcome=Outcome.ENDED, exit_code=0)


@dataclass
class FakeCarrier:
    """Handlers in `broken` are refused with the text; those in `hanging` are cut off.

    Programs in `slow` are cut off under every handler. `runs` has each (handler, program). While
    `is_down`, every call is a CarrierError.
    """

    broken: dict[str, str] = field(default_factory=dict)
    hanging: set[str] = field(default_factory=set)
    slow: set[str] = field(default_factory=set)
    is_down: bool = False
    runs: list[tuple[str, str]] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0
    cleaned: int = 0

    async def run(
        self, handler: str, container: ProbeContainer, *, deadline_s: float
    ) -> ProbeResult:
        if self.is_down:
            raise CarrierError("the engine is down")
        self.runs.append((handler, container.command[0].rsplit("/", 1)[-1]))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(0)
        finally:
            self.at_once -= 1
        if handler in self.broken:
            return ProbeResult(outcome=Outcome.REFUSED, error=self.broken[handler])
        if handler in self.hanging or self.runs[-1][1] in self.slow:
            return ProbeResult(
                outcome=Outcome.CUT_OFF, error=f"it did not end within {deadline_s:.0f} s"
            )
        output = PLAIN_OUTPUT if container.command == (_PLAIN_COMMAND,) else _WORK_OUTPUT
        return ProbeResult(outcome=Outcome.ENDED, exit_code=0, output=output)

    @asynccontextmanager
    async def running(
        self, handler: str, container: ProbeContainer, *, deadline_s: float
    ) -> AsyncIterator[RunningProbe]:
        result = await self.run(handler, container, deadline_s=deadline_s)
        if result.outcome is not Outcome.ENDED:
            raise ProbeRefusedError(result)
        yield _FakeProbe()

    async def clean(self) -> int:
        if self.is_down:
            raise CarrierError("the engine is down")
        self.cleaned += 1
        return 0
