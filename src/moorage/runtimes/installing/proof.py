"""Proof that a handler works: the first container of the probes, by any carrier of them."""

from __future__ import annotations

import asyncio

from moorage.runtimes.probing.carrier import CarrierError, Outcome, ProbeCarrier
from moorage.runtimes.probing.host import HostFacts, read_host
from moorage.runtimes.probing.running import run_plain

_DEADLINE_S = 60.0


class Proof:
    """Runs a container under a handler."""

    def __init__(self, carrier: ProbeCarrier) -> None:
        self._carrier = carrier
        self._host: HostFacts | None = None

    async def find_problem(self, handler: str) -> str:
        """Return why a container does not run under a handler, empty if it does.

        The sandbox is removed in any case, and those of a run that was killed are too.
        """
        if self._host is None:
            self._host = await asyncio.to_thread(read_host)
        try:
            await self._carrier.clean()
            result = await run_plain(self._carrier, handler, self._host, deadline_s=_DEADLINE_S)
        except CarrierError as error:
            return str(error)
        if result.outcome is Outcome.REFUSED:
            return f"its sandbox does not start: {result.error}"
        if result.outcome is Outcome.ENDED:
            code = result.exit_code
            return f"its container ended with status {code}" if code else ""
        return f"its container: {result.error}"
