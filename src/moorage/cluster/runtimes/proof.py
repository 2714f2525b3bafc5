"""Proof that a handler works: the first container of the probes, through the CRI of any engine."""

from __future__ import annotations

import asyncio
from pathlib import Path

from moorage.cri import CriClient
from moorage.probing.carrier import CarrierError, Outcome
from moorage.probing.cri_carrier import CriCarrier
from moorage.probing.host import HostFacts, read_host
from moorage.probing.running import run_plain

_DEADLINE_S = 60.0
_OWNER = "moor-runtime"


class Proof:
    """Runs a container under a handler. `state` is a directory for its log."""

    def __init__(self, cri: CriClient, state: Path) -> None:
        self._carrier = CriCarrier(cri, owner=_OWNER, state=state)
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
