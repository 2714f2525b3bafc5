"""Network pool: warm network namespaces, so that a pod's start need not wait for CNI plugins.

Where no plugin depends on the pod (see `Conflist.is_pod_independent`), a few namespaces are created
and attached in advance, while no pod is being started. RunPodSandbox takes one and sets its
hostname and sysctls. A pod with host ports or a bandwidth limit gets a network of its own, as every
pod does on other networks.
"""

from __future__ import annotations

import asyncio
import dataclasses
import re
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import msgspec

from moorage.api.clock import Clock
from moorage.api.logs import Log
from moorage.engine.networks.conflist import Conflist, ConflistError
from moorage.engine.networks.plugins import (
    INTERFACE,
    CniError,
    CniResult,
    Plugins,
    RuntimeConf,
    result_of_interrupted_add,
)
from moorage.linux import pinned
from moorage.linux.idmap import IdMappings

KINDS = (pinned.NET, pinned.IPC, pinned.UTS)
_PREFIX = "spare-"
_SPARE = re.compile(f"{_PREFIX}[0-9a-f]+")
_RESULT_FILE = "attachment.json"
_RETRY_S, _LONGEST_RETRY_S = 5.0, 60.0
_SAY_AGAIN_S = 3600.0
"""Time after which a failure is logged again that is as it was."""

log = Log(__name__)


@dataclass(frozen=True, slots=True)
class WarmNetwork:
    """Pinned namespaces that are attached to the network."""

    directory: Path
    result: CniResult


class _Said:
    """What was logged last of a failure that goes on."""

    def __init__(self) -> None:
        self._text = ""
        self._at_s = 0.0

    @property
    def is_failing(self) -> bool:
        return bool(self._text)

    def is_news(self, text: str, now_s: float) -> bool:
        """Return whether to log a failure, and take it for logged then."""
        # Each attempt has a name of its own.
        text = _SPARE.sub(_PREFIX, text)
        if text == self._text and now_s - self._at_s < _SAY_AGAIN_S:
            return False
        self._text, self._at_s = text, now_s
        return True


class NetworkPool:
    """Namespaces of pods. `run` keeps some warm until it is cancelled.

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
        wait_idle: Callable[[], Awaitable[None]],
    ) -> None:
        """`wait_idle` returns when no pod is being started."""
        self._directory = directory
        self._plugins = plugins
        self._network = network
        self._clock = clock
        self._size = size
        self._warm: deque[WarmNetwork] = deque()
        self._wait_idle = wait_idle
        self._changed = asyncio.Event()

    async def acquire(
        self,
        sandbox_id: str,
        hostname: str,
        sysctls: Mapping[Path, str],
        conf: RuntimeConf,
        mappings: IdMappings | None = None,
    ) -> tuple[Path, CniResult]:
        """Create a sandbox's namespaces and attach them to the network. Ignores `conf.netns`.

        Returns their directory and the CNI result. Raises CniError, ConflistError, OSError; leaves
        nothing behind then.
        """
        try:
            network = self._network()
            # A network belongs for good to the user namespace it was made in.
            warm = None if mappings else self._take_warm(network, conf.capability_args)
            target = self._directory / sandbox_id
            if warm is None:
                return await self._create(target, network, conf, hostname, sysctls, mappings)
            pinned.move(warm.directory, target)
            try:
                pinned.configure(target, KINDS, hostname, sysctls)
            except BaseException:
                await self.release(target, warm.result)
                raise
            return target, warm.result
        finally:
            self._changed.set()

    async def release(self, directory: Path, result: CniResult | None) -> None:
        """Detach a sandbox from the network and remove its namespaces; absent ones are no error.

        Raises CniError.
        """
        netns = directory / pinned.NET
        if result is not None:
            await self._plugins.remove(result, netns if pinned.is_pinned(netns) else None)
        await asyncio.to_thread(pinned.release, directory)

    async def run(self) -> None:
        """Keep `size` networks warm. Returns only if the network does not allow it.

        A failure is tried again after 5 to 60 s, and logged when it is another one, or after an
        hour.
        """
        retry_s, said = _RETRY_S, _Said()
        while True:
            self._changed.clear()
            if len(self._warm) >= self._size:
                await self._changed.wait()
                continue
            await self._wait_idle()
            try:
                network = self._network()
                if not network.is_pod_independent:
                    return
                await self._add_warm(network)
            except (CniError, ConflistError, OSError) as error:
                if said.is_news(str(error), self._clock.monotonic()):
                    log.warning("warm network creation failed", reason=error)
                await self._clock.sleep(retry_s)
                retry_s = min(_LONGEST_RETRY_S, 2 * retry_s)
            else:
                if said.is_failing:
                    log.info("warm networks are created again")
                retry_s, said = _RETRY_S, _Said()

    async def drain(self) -> None:
        """Release every warm network; failures are logged."""
        while self._warm:
            warm = self._warm.popleft()
            try:
                await self.release(warm.directory, warm.result)
            except CniError as error:
                log.warning("warm network release failed", reason=error)

    async def recover(self, sandbox_ids: frozenset[str]) -> None:
        """Adopt the warm networks of an earlier engine, and release all others without a sandbox.

        `sandbox_ids` are the ids of the existing sandboxes.
        """
        if not self._directory.is_dir():
            return
        for directory in sorted(self._directory.iterdir()):
            if directory.name in sandbox_ids:
                continue
            result = _read_result(directory)
            if result is not None and directory.name.startswith(_PREFIX):
                self._warm.append(WarmNetwork(directory, result))
                continue
            try:
                await self.release(directory, result or self._interrupted_result(directory))
            except (CniError, OSError) as error:
                log.warning("leftover network release failed", directory=directory, reason=error)

    def _interrupted_result(self, directory: Path) -> CniResult | None:
        """Return the presumed result of an interrupted ADD, None without a network."""
        conf = RuntimeConf(container_id=directory.name, netns=directory / pinned.NET)
        try:
            return result_of_interrupted_add(self._network(), conf)
        except ConflistError:
            return None

    def _take_warm(
        self, network: Conflist, capability_args: Mapping[str, Any]
    ) -> WarmNetwork | None:
        if capability_args or not network.is_pod_independent:
            return None
        return self._warm.popleft() if self._warm else None

    async def _add_warm(self, network: Conflist) -> None:
        name = f"{_PREFIX}{secrets.token_hex(8)}"
        directory = self._directory / name
        conf = RuntimeConf(container_id=name, netns=directory / pinned.NET)
        directory, result = await self._create(directory, network, conf, "", {})
        self._warm.append(WarmNetwork(directory, result))

    async def _create(
        self,
        directory: Path,
        network: Conflist,
        conf: RuntimeConf,
        hostname: str,
        sysctls: Mapping[Path, str],
        mappings: IdMappings | None = None,
    ) -> tuple[Path, CniResult]:
        create = partial(
            pinned.create, directory, KINDS, hostname=hostname, sysctls=sysctls, mappings=mappings
        )
        # Takes less time than a hop to a thread, but a user namespace waits for a process.
        await asyncio.to_thread(create) if mappings else create()
        try:
            result = await self._plugins.add(
                network, dataclasses.replace(conf, netns=directory / pinned.NET)
            )
            # Beside the namespaces, so that a later engine can run DEL.
            (directory / _RESULT_FILE).write_bytes(msgspec.json.encode(result))
            _announce(directory, result)
        except BaseException:
            await asyncio.to_thread(pinned.release, directory)
            raise
        return directory, result


def _announce(directory: Path, result: CniResult) -> None:
    """Announce a sandbox's addresses to the host and to other pods. A failure is logged.

    Debian 12's bridge plugin (1.1) does not: a host that had talked to the address's former pod
    would not reach the new one for up to 11 s, and its probes would fail.
    """
    try:
        addresses = [IPv4Address(address) for address in result.addresses if ":" not in address]
        pinned.announce_addresses(directory, INTERFACE, addresses)
    except (OSError, ValueError) as error:
        log.debug("addresses not announced", directory=directory, reason=error)


def _read_result(directory: Path) -> CniResult | None:
    try:
        return msgspec.json.decode((directory / _RESULT_FILE).read_bytes(), type=CniResult)
    except (FileNotFoundError, msgspec.DecodeError, msgspec.ValidationError):
        return None
