"""Engine of a node, as the installation of runtimes sees it: one seam for ours and others'."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from moorage.api.runtime_group import PROBE_LABEL
from moorage.runtimes.installing.engines import FileChange
from moorage.runtimes.installing.plan import Plan
from moorage.wire.cri import CriClient, CriError, pb

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
