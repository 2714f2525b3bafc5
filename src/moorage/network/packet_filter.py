"""Packet filter of a cluster: its tables in the kernel, one for each address family.

A change is one transaction. If the kernel refuses it, because another program removed a table or a
part of it, the whole tables are written again. If it refuses those, the fragments that it does not
take are left out, so that one object never keeps the rules of all others from the kernel: a Service
left out leads nowhere, a pod left out is cut off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from moorage.api.logs import Log
from moorage.linux.nftables import NftablesError
from moorage.network.frame import Family
from moorage.network.tables import EMPTY, Fragment, Table

Change = tuple[Family, str, Fragment]
"""A fragment for a key in the table of a family; an empty one removes it."""

_SMALL_CHARS: Final = 20_000
"""A script up to this size takes a few milliseconds, less than a thread is worth."""

log = Log(__name__)


class Kernel(Protocol):
    """The kernel's packet filter, as `linux.nftables.Nftables`. Blocks; raises NftablesError."""

    def run(self, script: str) -> str:
        """Run a script of nft(8)."""

    def rules(self, family: str, table: str, chains: Iterable[str]) -> tuple[int, ...]:
        """Return the numbers of the rules in chains, none for what is missing."""


def check_kernel(kernel: Kernel, tables: Iterable[Table]) -> None:
    """Check that the kernel takes these tables, which are removed again. Raises NftablesError."""
    for table in tables:
        kernel.run(table.trial(table.owners, f"{table.name}-trial"))


class PacketFilter:
    """The tables of one cluster. Changes are applied in the order in which they are given."""

    def __init__(self, kernel: Kernel, tables: Mapping[Family, Table]) -> None:
        self._kernel = kernel
        self._tables = dict(tables)
        self._lock = asyncio.Lock()
        self._is_written = False
        self._written_rules: list[tuple[int, ...]] = []
        self._refused: dict[tuple[Family, str], str] = {}

    @property
    def tables(self) -> tuple[Table, ...]:
        return tuple(self._tables.values())

    @property
    def families(self) -> tuple[Family, ...]:
        return tuple(self._tables)

    def fragment(self, family: Family, key: str) -> Fragment:
        """Return what a key has in the table of a family."""
        return self._tables[family].fragment(key)

    def refusal(self, key: str) -> str:
        """Return why the kernel does not take what a key has, empty if it does."""
        reasons = (self._refused.get((family, key), "") for family in self._tables)
        return next(filter(None, reasons), "")

    async def write(self, changes: Iterable[Change] = ()) -> None:
        """Replace the tables in the kernel by the whole of what is wanted. Raises NftablesError."""
        async with self._lock:
            self._note(changes)
            await self._write()

    async def apply(self, changes: Iterable[Change]) -> None:
        """Exchange fragments in the kernel. Raises NftablesError if whole tables fail too."""
        async with self._lock:
            script = self._note(changes)
            if not self._is_written:
                await self._write()
            elif script:
                try:
                    await self._run(script)
                except NftablesError as error:
                    log.warning("packet filter refused a change, written again", reason=error)
                    await self._write()

    async def repair(self) -> bool:
        """Write the tables again if another program changed them. Return whether one did."""
        async with self._lock:
            if not self._is_written or self._rules() == self._written_rules:
                return False
            await self._write()
            return True

    def _rules(self) -> list[tuple[int, ...]]:
        return [
            self._kernel.rules(table.family, table.name, table.base_chains)
            for table in self._tables.values()
        ]

    def _note(self, changes: Iterable[Change]) -> str:
        lines = []
        for family, key, fragment in changes:
            self._refused.pop((family, key), None)
            lines.append(self._tables[family].replace(key, fragment))
        return "".join(lines)

    async def _write(self) -> None:
        self._is_written = False
        try:
            await self._run(self._script())
        except NftablesError as error:
            if not await self._leave_out_refused():
                raise
            log.warning("packet filter written without what it refused", reason=error)
            await self._run(self._script())
        self._written_rules = self._rules()
        self._is_written = True

    def _script(self) -> str:
        return "".join(table.script() for table in self._tables.values())

    async def _leave_out_refused(self) -> bool:
        """Remove the fragments that the kernel does not take. Return whether there were any."""
        is_any = False
        for family, table in self._tables.items():
            parts = [sorted(table.owners)]
            while parts:
                part = parts.pop()
                try:
                    await self._run(table.trial(part, f"{table.name}-trial"))
                except NftablesError as error:
                    middle = len(part) // 2
                    if middle:
                        parts += [part[middle:], part[:middle]]
                    elif part:
                        is_any = True
                        table.replace(part[0], EMPTY)
                        self._refused[family, part[0]] = str(error)
                        log.error("rules refused, left out", owner=part[0], reason=error)
        return is_any

    async def _run(self, script: str) -> None:
        if len(script) <= _SMALL_CHARS:
            self._kernel.run(script)
        else:
            await asyncio.to_thread(self._kernel.run, script)
