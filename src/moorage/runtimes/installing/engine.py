"""Engine of a node, as the installation of runtimes sees it: one seam for ours and others'."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from moorage.api.runtime_group import PROBE_LABEL
from moorage.runtimes.installing.downloads import Proof, RuntimeInstallationError
from moorage.runtimes.installing.engines import FileChange
from moorage.runtimes.installing.plan import Plan, is_installed
from moorage.runtimes.installing.removal import check_removal
from moorage.wire.cri import CriClient, CriError, engine_pb, pb

# Our own engine, which takes a handler file over at once and restarts for nothing.

_TAKEN_OVER_S = 30.0
# A handler that the engine found not to work may still come up, but not for long.
_HOPE_S = 5.0


class OwnEngine:
    """An engine with a directory of handler files. `ManagedEngine` documents the methods."""

    restart: tuple[str, ...] = ()

    def __init__(self, cri: CriClient, handlers: Path, proof: Proof) -> None:
        self.cri = cri
        self._handlers = handlers
        self._proof = proof

    @property
    def changes_running(self) -> bool:
        return False

    async def written(self) -> frozenset[str]:
        return frozenset(await asyncio.to_thread(self._written))

    def _written(self) -> list[str]:
        return [
            file.stem for file in self._handlers.glob("*.toml") if is_installed(file.read_bytes())
        ]

    async def offered(self) -> tuple[str, ...]:
        # The others do not depend on a file that is added or removed.
        return ()

    async def addition(self, plan: Plan) -> tuple[FileChange, ...]:
        before = await asyncio.to_thread(self._content, plan.handler)
        if before is not None and not is_installed(before):
            raise RuntimeInstallationError(
                f"handler {plan.handler} is there already, and `moor runtime` did not write it "
                f"({plan.file}): give another name"
            )
        return (FileChange(plan.file, before, plan.definition),)

    async def removal(self, handler: str) -> tuple[FileChange, ...]:
        file = self._handlers / f"{handler}.toml"
        defined_by = await self._file_of(handler) or file
        await asyncio.to_thread(check_removal, handler, defined_by)
        return (FileChange(file, await asyncio.to_thread(self._content, handler), None),)

    async def take_over(self, plan: Plan) -> None:
        problem = await self._wait_available(plan) or await self._proof.find_problem(plan.handler)
        if problem:
            raise RuntimeInstallationError(f"handler {plan.handler} does not work: {problem}")

    async def drop(self, handler: str) -> None:
        del handler  # The engine takes the file's end over by itself.

    async def take_back(self, offered: Sequence[str], restart: Sequence[str]) -> None:
        del offered, restart  # The same.

    async def _file_of(self, handler: str) -> Path | None:
        """Return the file that defines a handler for the engine, None if it has no such handler.

        Raises CriError.
        """
        request = engine_pb.WatchHandlersRequest()
        listed = await anext(self.cri.stream(self.cri.engine.WatchHandlers, request), None)
        found = (one.file for one in listed.handlers if one.name == handler) if listed else iter(())
        return next(map(Path, found), None)

    def _content(self, handler: str) -> bytes | None:
        try:
            return (self._handlers / f"{handler}.toml").read_bytes()
        except FileNotFoundError:
            return None

    async def _wait_available(self, plan: Plan) -> str:
        """Wait until the engine offers the handler with the program; return why it does not."""
        problem = "the engine does not take its file over"
        request = engine_pb.WatchHandlersRequest()
        try:
            async with asyncio.timeout(_TAKEN_OVER_S) as limit:
                async for listed in self.cri.stream(self.cri.engine.WatchHandlers, request):
                    for handler in listed.handlers:
                        if handler.name == plan.handler and handler.program == str(plan.program):
                            if handler.is_available:
                                return ""
                            problem = handler.reason
                            limit.reschedule(asyncio.get_running_loop().time() + _HOPE_S)
        except TimeoutError:
            return problem
        except CriError as error:
            return error.sentence
        return "the engine ended"


# CRI sockets of engines at their usual paths. Source: containerd(8), crio(8), k3s "containerd".

USUAL_SOCKETS = (
    Path("/run/containerd/containerd.sock"),
    Path("/run/crio/crio.sock"),
    Path("/var/run/crio/crio.sock"),
)
KUBELET_SOCKETS = (
    *USUAL_SOCKETS,
    Path("/run/k3s/containerd/containerd.sock"),
    Path("/run/moorage-engine/engine.sock"),
)
"""Sockets of engines that a kubelet may use: with that of k3s, and ours."""


def sockets_in(sockets: Sequence[Path]) -> list[Path]:
    """Return those of these sockets that exist, each once, by path. Blocks.

    One in a directory that this process may not look into is none of a kubelet's.
    """
    return sorted({path.resolve() for path in sockets if _is_socket(path)})


def _is_socket(path: Path) -> bool:
    try:
        return path.is_socket()
    except PermissionError:
        return False


_CRIO_HANDLER = "io.kubernetes.cri-o.RuntimeHandler"


class ManagedEngine(Protocol):
    """An engine whose handlers are changed by changes of files.

    All methods raise RuntimeInstallationError, CriError, OSError.
    """

    cri: CriClient

    @property
    def restart(self) -> tuple[str, ...]:
        """Return the command that restarts the engine; empty if none is needed, or known."""

    @property
    def changes_running(self) -> bool:
        """Return whether containers that run get a changed handler's program. After `written`."""

    async def written(self) -> frozenset[str]:
        """Return the handlers that `moor runtime` wrote."""

    async def offered(self) -> tuple[str, ...]:
        """Return the handlers that the engine has."""

    async def addition(self, plan: Plan) -> tuple[FileChange, ...]:
        """Return the changes of files that add or replace a handler."""

    async def removal(self, handler: str) -> tuple[FileChange, ...]:
        """Return the changes of files that remove a handler."""

    async def take_over(self, plan: Plan) -> None:
        """Have the engine use changed files, and prove that the handler and all others work."""

    async def drop(self, handler: str) -> None:
        """Have the engine use files without a handler; pods go on."""

    async def take_back(self, offered: Sequence[str], restart: Sequence[str]) -> None:
        """Have the engine use restored files, whatever it uses now, and prove that it does.

        `offered` are the handlers that it had with them.
        """


class Sandbox:
    """A sandbox of a handler: whether it is a pod's, and when it began."""

    def __init__(self, sandbox: pb.PodSandbox) -> None:
        self.name = f"{sandbox.metadata.namespace}/{sandbox.metadata.name}"
        self.created_ns = sandbox.created_at
        self.is_running_pod = (
            PROBE_LABEL not in sandbox.labels and sandbox.state == pb.SANDBOX_READY
        )


class _Spec(msgspec.Struct, frozen=True):
    annotations: dict[str, str] = {}


class _Info(msgspec.Struct, frozen=True):
    spec: _Spec = msgspec.field(default=_Spec(), name="runtimeSpec")


async def sandboxes_of(cri: CriClient, handler: str) -> list[Sandbox]:
    """Return the sandboxes of a handler, those of probes too. Raises CriError."""
    listed = await cri.call(cri.runtime.ListPodSandbox, pb.ListPodSandboxRequest())
    found = []
    for sandbox in listed.items:
        name = sandbox.runtime_handler or await _reported_handler(cri, sandbox.id)
        if name == handler:
            found.append(Sandbox(sandbox))
    return found


async def _reported_handler(cri: CriClient, sandbox: str) -> str:
    """Return the handler in a sandbox's verbose status, where CRI-O has it alone. Raises CriError.

    Empty for the default handler, and for a sandbox that is gone.
    """
    request = pb.PodSandboxStatusRequest(pod_sandbox_id=sandbox, verbose=True)
    try:
        reply = await cri.call(cri.runtime.PodSandboxStatus, request)
    except CriError as error:
        if error.is_not_found:
            return ""
        raise
    if reply.status.runtime_handler:
        return reply.status.runtime_handler
    try:
        info = msgspec.json.decode(reply.info.get("info", "{}"), type=_Info)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return ""
    return info.spec.annotations.get(_CRIO_HANDLER, "")
