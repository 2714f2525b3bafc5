"""Installations that a node follows: RuntimeInstallations become handlers of its engine.

informers ──▶ next_step ──▶ Installer ──▶ record ──▶ own entry in status.nodes, events

A node changes when the controller allows it, one installation at a time, and tries again what
failed. What it installed for an object that is gone is removed.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import msgspec

from moorage.api.clock import Clock, SystemClock, format_time
from moorage.api.errors import ConflictError, NotFoundError, OperationError, StatusError
from moorage.api.logs import Log
from moorage.api.nodes import ARCH, Node
from moorage.api.runtime_group import API_VERSION
from moorage.api.runtime_installations import (
    FAILED,
    INSTALLED,
    INSTALLING,
    REMOVING,
    NodeInstallation,
    RuntimeInstallation,
    node_manager,
)
from moorage.api.text import valid_text
from moorage.runtimeclass.installations import (
    NodeFacts,
    Record,
    Step,
    next_step,
    source_digest,
    source_of,
)
from moorage.runtimes.installing.downloads import (
    HandlerInUseError,
    RuntimeInstallationError,
    download,
)
from moorage.runtimes.installing.installation import Installer
from moorage.runtimes.installing.plan import Request, Source
from moorage.runtimes.installing.records import Records
from moorage.wire.client.informer import Informer
from moorage.wire.client.queue import WorkQueue
from moorage.wire.client.recorder import NORMAL, WARNING, EventRecorder, reference
from moorage.wire.client.resources import NODES, RUNTIME_INSTALLATIONS
from moorage.wire.client.rest import Client, PatchType
from moorage.wire.cri import CriError

_RETRY_S, _RETRY_LIMIT_S = 10.0, 600.0
_MESSAGE_LIMIT = 1024
_DOWNLOADS = ".downloads"

log = Log(__name__)

OWN_DIRECTORY = Path("/tmp")
"""Of the agent's pod alone: an `emptyDir`."""

InstallPackage = Callable[[str], Awaitable[None]]
"""Installs a system package of the host by its name; raises OperationError."""

Connect = Callable[[], AbstractAsyncContextManager[Installer]]
"""Connects to the node's engine; raises RuntimeInstallationError, CriError."""


class InstallationFollower:
    """Follows the RuntimeInstallations of an API server on one node."""

    def __init__(
        self,
        client: Client,
        node: str,
        store: Path,
        connect: Connect,
        recorder: EventRecorder,
        clock: Clock | None = None,
        *,
        is_contained: bool = False,
        install_package: InstallPackage | None = None,
        own_directory: Path = OWN_DIRECTORY,
    ) -> None:
        """`install_package` is None where the agent has no package manager of the host.

        `is_contained` is of an agent in a container; `own_directory` is there the agent's own, in
        place of the node's.
        """
        self._client = client
        self._node = node
        self._is_contained = is_contained
        self._install_package = install_package
        self._own_directory = own_directory
        self._store = store
        self._connect = connect
        self._recorder = recorder
        self._clock = clock or SystemClock()
        self._records = Records(store)
        self._installations = Informer(client, RUNTIME_INSTALLATIONS, clock=self._clock)
        self._nodes = Informer(
            client, NODES, field_selector=f"metadata.name={node}", clock=self._clock
        )
        self._queue: WorkQueue[str] = WorkQueue("installations of a node", clock=self._clock)
        self._failures: dict[str, int] = {}
        self._not_before: dict[str, float] = {}
        """When an installation that failed is tried again, on the monotonic clock."""
        self._installations.add_handler(self._installation_changed)
        self._nodes.add_handler(self._node_changed)

    async def run(self) -> None:
        """Follow until cancelled. The kind must be served."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._installations.run())
            tasks.create_task(self._nodes.run())
            await self._installations.wait_synced()
            await self._nodes.wait_synced()
            for name in await asyncio.to_thread(self._records.all):
                self._queue.add(name)
            # One at a time: each may restart the engine.
            await self._queue.run(self._reconcile)

    def _installation_changed(
        self, before: RuntimeInstallation | None, after: RuntimeInstallation | None
    ) -> None:
        either = after or before
        assert either is not None
        name = either.metadata.name
        if before is None or after is None or _generation(before) != _generation(after):
            self._failures.pop(name, None)
            self._not_before.pop(name, None)
        self._queue.add(name)

    def _node_changed(self, before: Node | None, after: Node | None) -> None:
        if before is None or after is None or before.metadata.labels != after.metadata.labels:
            for installation in self._installations:
                self._queue.add(installation.metadata.name)

    async def _reconcile(self, name: str) -> float | None:
        node = self._nodes.get(self._node)
        if node is None:
            return None
        installation = self._installations.get(name)
        record = (await asyncio.to_thread(self._records.all)).get(name)
        facts = NodeFacts(self._node, node.metadata.labels, node.metadata.labels.get(ARCH, ""))
        step = next_step(installation, record, facts)
        if step in (Step.INSTALL, Step.REMOVE):
            left_s = self._not_before.get(name, 0.0) - self._clock.monotonic()
            if left_s > 0:
                # The report of the failure came back as a change.
                return left_s
        if record is not None and installation is not None and record.uid != _uid(installation):
            # What is removed was of an earlier object.
            installation = None
        try:
            if step is Step.INSTALL:
                assert installation is not None
                await self._install(name, installation, record, facts)
            elif step is Step.REMOVE:
                assert record is not None
                if not await self._remove(name, installation, record):
                    return _RETRY_S
            elif step is Step.FORGET:
                await asyncio.to_thread(self._records.remove, name)
                await self._report(installation, None)
            elif step is Step.REPORT:
                assert installation is not None
                assert record is not None
                await self._report_installed(installation, record)
        except (OperationError, CriError, OSError) as error:
            return await self._failed(name, installation, error)
        except (ConflictError, NotFoundError) as error:
            log.debug("entry of an installation is not written", installation=name, reason=error)
            return None
        if step is not Step.WAIT:
            self._failures.pop(name, None)
            self._not_before.pop(name, None)
        if installation is None and step is Step.REMOVE:
            # The present object of this name is next.
            self._queue.add(name)
        return None

    async def _install(
        self,
        name: str,
        installation: RuntimeInstallation,
        record: Record | None,
        facts: NodeFacts,
    ) -> None:
        spec = installation.spec
        source = source_of(spec, facts.architecture)
        assert source is not None
        await self._report_start(installation, INSTALLING)
        downloads = self._store / _DOWNLOADS
        try:
            request = await self._request(installation, facts.architecture, downloads)
            pending = Record(
                uid=installation.metadata.uid,
                handler=spec.handler,
                removal_policy=spec.removal_policy,
            )
            async with self._connect() as installer:
                is_there = spec.handler in await installer.engine.written()
                if is_there and record is None:
                    raise RuntimeInstallationError(
                        f"handler {spec.handler} is there already, added by `moor runtime` or for "
                        "another installation"
                    )
                await asyncio.to_thread(self._records.write, name, pending)
                try:
                    plan = await installer.install(request, is_upgrade=is_there)
                except BaseException:
                    if record is None:
                        await asyncio.to_thread(self._records.remove, name)
                    raise
        finally:
            await asyncio.to_thread(shutil.rmtree, downloads, ignore_errors=True)
        complete = msgspec.structs.replace(
            pending,
            digest=source_digest(spec, facts.architecture),
            version=source.version or plan.version,
            program=str(plan.program),
        )
        await asyncio.to_thread(self._records.write, name, complete)
        message = (
            f"node {self._node} has handler {spec.handler}: version {complete.version}, proven by "
            "a container"
        )
        self._record(installation, NORMAL, "NodeInstalled", message)
        await self._report_installed(installation, complete)

    async def _request(
        self, installation: RuntimeInstallation, architecture: str, downloads: Path
    ) -> Request:
        """Return the request to install, its source downloaded where it has an address."""
        spec = installation.spec
        source = source_of(spec, architecture)
        assert source is not None
        if source.package:
            if self._install_package is None:
                raise RuntimeInstallationError(
                    f"package {source.package} cannot be installed by an agent in a container: "
                    "give an archive or a program by url and sha256, or have the package installed "
                    "on the nodes and give its path"
                )
            await self._install_package(source.package)
            kind, origin = Source.PACKAGE, source.package
        else:
            kind = Source.ARCHIVE if source.program else Source.BINARY
            origin = source.path
            if source.path and self._is_contained:
                await asyncio.to_thread(_check_mounted, Path(source.path), self._own_directory)
            if source.url:
                origin = str(await download(source.url, source.sha256, downloads))
        return Request(
            handler=spec.handler,
            source=kind,
            origin=origin,
            program=source.program,
            digest=source.sha256,
            adapter=spec.adapter,
            options=spec.options,
        )

    async def _remove(
        self, name: str, installation: RuntimeInstallation | None, record: Record
    ) -> bool:
        """Remove a handler and its versions; return whether no sandbox is left that needs one."""
        if installation is not None:
            await self._report_start(installation, REMOVING)
        versions = self._store / record.handler
        async with self._connect() as installer:
            is_there = record.handler in await installer.engine.written()
            is_there = is_there or await asyncio.to_thread(versions.exists)
            if is_there and not await installer.remove(record.handler):
                return False
        await asyncio.to_thread(self._records.remove, name)
        if installation is not None:
            message = f"node {self._node} does not have handler {record.handler} any longer"
            self._record(installation, NORMAL, "NodeRemoved", message)
            await self._report(installation, None)
        return True

    async def _report_start(self, installation: RuntimeInstallation, phase: str) -> None:
        """Report that a change starts; one that is tried again keeps the message of its failure."""
        before = self._present(installation)
        generation = installation.metadata.generation
        if before is None or (before.phase, before.observed_generation) != (FAILED, generation):
            await self._report(installation, self._entry(installation, phase))

    async def _failed(
        self, name: str, installation: RuntimeInstallation | None, error: Exception
    ) -> float:
        """Report a failure; return after how many seconds the node tries again."""
        message = valid_text(str(error)[:_MESSAGE_LIMIT])
        pause_s = _RETRY_S
        if not isinstance(error, HandlerInUseError):
            # That one has changed nothing, and pods are deleted at any time.
            count = self._failures.get(name, 0)
            self._failures[name] = count + 1
            pause_s = float(min(_RETRY_S * 2 ** min(count, 16), _RETRY_LIMIT_S))
        self._not_before[name] = self._clock.monotonic() + pause_s
        log.warning("installation failed", installation=name, reason=error)
        if installation is not None:
            self._record(installation, WARNING, "NodeFailed", f"node {self._node}: {message}")
            try:
                await self._report(installation, self._entry(installation, FAILED, message=message))
            except StatusError as refusal:
                log.warning("failure is not reported", installation=name, reason=refusal)
        return pause_s

    async def _report_installed(self, installation: RuntimeInstallation, record: Record) -> None:
        if record.removal_policy != installation.spec.removal_policy:
            record = msgspec.structs.replace(
                record, removal_policy=installation.spec.removal_policy
            )
            await asyncio.to_thread(self._records.write, installation.metadata.name, record)
        entry = self._entry(installation, INSTALLED, version=record.version, program=record.program)
        await self._report(installation, entry)

    def _entry(
        self, installation: RuntimeInstallation, phase: str, **more: str
    ) -> NodeInstallation:
        before = self._present(installation)
        is_same = before is not None and before.phase == phase
        return NodeInstallation(
            name=self._node,
            phase=phase,
            observed_generation=installation.metadata.generation,
            since=before.since if before is not None and is_same else self._now(),
            **more,
        )

    def _present(self, installation: RuntimeInstallation) -> NodeInstallation | None:
        entries = installation.status.nodes
        return next((entry for entry in entries if entry.name == self._node), None)

    async def _report(
        self, installation: RuntimeInstallation | None, entry: NodeInstallation | None
    ) -> None:
        """Write the node's entry, or remove it; nothing if it is written already."""
        if installation is None or self._present(installation) == entry:
            return
        status = {} if entry is None else {"nodes": [msgspec.to_builtins(entry)]}
        name = installation.metadata.name
        body: Mapping[str, object] = {
            "apiVersion": API_VERSION,
            "kind": RUNTIME_INSTALLATIONS.kind,
            "metadata": {"name": name, "uid": installation.metadata.uid},
            "status": status,
        }
        after = await self._client.patch(
            RUNTIME_INSTALLATIONS,
            name,
            body,
            kind=PatchType.APPLY,
            subresource="status",
            field_manager=node_manager(self._node),
            force=True,
        )
        if entry is None and self._present(after) is not None:
            await self._remove_entry(after)

    async def _remove_entry(self, installation: RuntimeInstallation) -> None:
        """Remove the node's entry where the node does not own it, or not alone.

        The server drops the ownership of an object that is too large, as one with thousands of
        nodes may be.
        """
        names = [entry.name for entry in installation.status.nodes]
        place = f"/status/nodes/{names.index(self._node)}"
        patch = [
            {"op": "test", "path": f"{place}/name", "value": self._node},
            {"op": "remove", "path": place},
        ]
        await self._client.patch(
            RUNTIME_INSTALLATIONS,
            installation.metadata.name,
            patch,
            kind=PatchType.JSON,
            subresource="status",
            field_manager=node_manager(self._node),
        )

    def _record(
        self, installation: RuntimeInstallation, kind: str, reason: str, message: str
    ) -> None:
        about = reference(RUNTIME_INSTALLATIONS, installation)
        self._recorder.record(about, kind, reason, message)

    def _now(self) -> str:
        return format_time(self._clock.now())


def _generation(installation: RuntimeInstallation) -> int:
    return installation.metadata.generation


def _uid(installation: RuntimeInstallation) -> str:
    return installation.metadata.uid


def _check_mounted(path: Path, own_directory: Path) -> None:
    """Raise RuntimeInstallationError if an agent in a container does not see a path. Blocks."""
    if path.is_relative_to(own_directory):
        raise RuntimeInstallationError(
            f"{path}: the agent in its container has a {own_directory} of its own, not the "
            "node's: put the program into another directory and add that to agent.hostPaths, or "
            "give the program by url and sha256"
        )
    if not path.is_file():
        raise RuntimeInstallationError(
            f"{path} is no file for the agent in its container: add its directory to "
            "agent.hostPaths if the node has it, or give the program by url and sha256"
        )
