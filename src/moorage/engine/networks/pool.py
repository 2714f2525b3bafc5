"""Network namespaces with an address, made before a pod asks: a start need not wait for plugins.

Where every plugin gives all pods the same (see `Conflist.is_impersonal`), its work is done in
advance for a few namespaces, in moments when no pod is being started. A pod takes one and names it;
one with host ports or a bandwidth of its own gets its network made then, as on every other network.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from moorage.api.clock import Clock
from moorage.api.logs import Log
from moorage.engine.networks.conflist import Conflist, ConflistError
from moorage.engine.networks.plugins import (
    CniError,
    CniResult,
    Plugins,
    Subject,
    unanswered,
)
from moorage.linux import pinned
from moorage.linux.idmap import IdMappings

KINDS = (pinned.NET, pinned.IPC, pinned.UTS)
_PREFIX = "spare-"
_ATTACHMENT = "attachment.json"
_RETRY_S = 5.0

log = Log(__name__)


@dataclass(frozen=True, slots=True)
class WarmNetwork:
    """Pinned namespaces that are on the network already."""

    directory: Path
    attachment: CniResult


class NetworkPool:
    """Namespaces for pods, some of them ready. `run` makes new ones until it is cancelled.

    `directory` holds one directory of pinned namespaces for each sandbox, named by its id.
    """

    def __init__(
        self,
        directory: Path,
        plugins: Plugins,
        network: Callable[[], Conflist],
        clock: Clock,
        *,
        size: int,
        lull: Callable[[], Awaitable[None]],
    ) -> None:
        """`lull` returns when there is time for work that nobody waits for yet."""
        self._directory = directory
        self._plugins = plugins
        self._network = network
        self._clock = clock
        self._size = size
        self._spares: deque[WarmNetwork] = deque()
        self._lull = lull
        self._changed = asyncio.Event()

    async def take(
        self,
        sandbox_id: str,
        hostname: str,
        sysctls: Mapping[Path, str],
        subject: Subject,
        mappings: IdMappings | None = None,
    ) -> tuple[Path, CniResult]:
        """A sandbox's namespaces, on the network. Raises CniError, ConflistError, OSError.

        Nothing stays of it after a failure. `subject.netns` is not looked at.
        """
        try:
            network = self._network()
            # A network belongs for good to the user namespace it was made in.
            spare = None if mappings else self._spare(network, subject.arguments)
            target = self._directory / sandbox_id
            if spare is None:
                return await self._make(target, network, subject, hostname, sysctls, mappings)
            pinned.move(spare.directory, target)
            try:
                pinned.furnish(target, KINDS, hostname, sysctls)
            except BaseException:
                await self.give_back(target, spare.attachment)
                raise
            return target, spare.attachment
        finally:
            self._changed.set()

    async def give_back(self, directory: Path, attachment: CniResult | None) -> None:
        """Take a sandbox off the network and let its namespaces go; gone already is no error.

        Raises CniError.
        """
        netns = directory / pinned.NET
        if attachment is not None:
            await self._plugins.remove(attachment, netns if pinned.is_pinned(netns) else None)
        await asyncio.to_thread(pinned.release, directory)

    async def run(self) -> None:
        """Keep some namespaces ready."""
        while True:
            self._changed.clear()
            if len(self._spares) >= self._size:
                await self._changed.wait()
                continue
            await self._lull()
            try:
                network = self._network()
                if not network.is_impersonal:
                    return
                await self._prepare(network)
            except (CniError, ConflistError, OSError) as error:
                log.warning("no network can be made in advance", reason=error)
                await self._clock.sleep(_RETRY_S)

    async def drain(self) -> None:
        """Give every spare back."""
        while self._spares:
            spare = self._spares.popleft()
            try:
                await self.give_back(spare.directory, spare.attachment)
            except CniError as error:
                log.warning("a spare network could not be taken off", reason=error)

    async def recover(self, known: frozenset[str]) -> None:
        """Take over the spares that an earlier engine made, and give back what it left half-made.

        `known` are the ids of the sandboxes there are.
        """
        if not self._directory.is_dir():
            return
        for directory in sorted(self._directory.iterdir()):
            if directory.name in known:
                continue
            attachment = _read(directory)
            if attachment is not None and directory.name.startswith(_PREFIX):
                self._spares.append(WarmNetwork(directory, attachment))
                continue
            try:
                await self.give_back(directory, attachment or self._guess(directory))
            except (CniError, OSError) as error:
                log.warning("a network left behind stays", directory=directory, reason=error)

    def _guess(self, directory: Path) -> CniResult | None:
        """What a chain that was cut short may have added."""
        try:
            return unanswered(
                self._network(), Subject(id=directory.name, netns=directory / pinned.NET)
            )
        except ConflistError:
            return None

    def _spare(self, network: Conflist, arguments: Mapping[str, Any]) -> WarmNetwork | None:
        if arguments or not network.is_impersonal:
            return None
        return self._spares.popleft() if self._spares else None

    async def _prepare(self, network: Conflist) -> None:
        name = f"{_PREFIX}{secrets.token_hex(8)}"
        directory = self._directory / name
        subject = Subject(id=name, netns=directory / pinned.NET)
        directory, attachment = await self._make(directory, network, subject, "", {})
        self._spares.append(WarmNetwork(directory, attachment))

    async def _make(
        self,
        directory: Path,
        network: Conflist,
        subject: Subject,
        hostname: str,
        sysctls: Mapping[Path, str],
        mappings: IdMappings | None = None,
    ) -> tuple[Path, CniResult]:
        make = partial(
            pinned.make, directory, KINDS, hostname=hostname, sysctls=sysctls, mappings=mappings
        )
        # The short way takes less than a hop to a thread; a user namespace waits for a process.
        await asyncio.to_thread(make) if mappings else make()
        try:
            placed = Subject(
                id=subject.id,
                netns=directory / pinned.NET,
                arguments=subject.arguments,
                words=subject.words,
            )
            attachment = await self._plugins.add(network, placed)
            # Beside the namespaces, so that they can be taken off whatever becomes of us.
            (directory / _ATTACHMENT).write_bytes(msgspec.json.encode(attachment))
        except BaseException:
            await asyncio.to_thread(pinned.release, directory)
            raise
        return directory, attachment


def _read(directory: Path) -> CniResult | None:
    try:
        return msgspec.json.decode((directory / _ATTACHMENT).read_bytes(), type=CniResult)
    except (FileNotFoundError, msgspec.DecodeError, msgspec.ValidationError):
        return None
