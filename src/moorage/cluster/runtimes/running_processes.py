"""Running processes of an engine's pods, before and after it was restarted.

An engine reports the process of each sandbox and container in their verbose status; with its start
time it identifies a process. Source: containerd internal/cri/server, CRI-O server: `info["info"]`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from moorage.cri import CriClient, CriError, pb
from moorage.linux.process import Identity, began, state


class PodProcess(msgspec.Struct, frozen=True):
    """The process of a sandbox or container."""

    name: str
    is_sandbox: bool
    identity: Identity


class _Info(msgspec.Struct, frozen=True):
    pid: int = 0


async def running_processes(cri: CriClient) -> dict[str, PodProcess]:
    """Return the processes of the running sandboxes and containers by their IDs. Raises CriError.

    Those whose engine does not report a process, or that end meanwhile, are left out.
    """
    processes: dict[str, PodProcess] = {}
    sandboxes = await cri.call(cri.runtime.ListPodSandbox, pb.ListPodSandboxRequest())
    for sandbox in sandboxes.items:
        if sandbox.state == pb.SANDBOX_READY:
            name = f"sandbox of {sandbox.metadata.namespace}/{sandbox.metadata.name}"
            asked = pb.PodSandboxStatusRequest(pod_sandbox_id=sandbox.id, verbose=True)
            info = await _info(cri, cri.runtime.PodSandboxStatus, asked)
            _add(processes, sandbox.id, name, info, is_sandbox=True)
    containers = await cri.call(cri.runtime.ListContainers, pb.ListContainersRequest())
    for container in containers.containers:
        if container.state == pb.CONTAINER_RUNNING:
            name = f"container {container.metadata.name} ({container.id[:12]})"
            inquiry = pb.ContainerStatusRequest(container_id=container.id, verbose=True)
            info = await _info(cri, cri.runtime.ContainerStatus, inquiry)
            _add(processes, container.id, name, info, is_sandbox=False)
    return processes


async def find_disturbed(cri: CriClient, before: Mapping[str, PodProcess]) -> list[str]:
    """Return a sentence for each process that did not survive, or whose engine lost it.

    A container that ended by itself with status 0, or that another client removed, is none.
    Raises CriError.
    """
    sentences = []
    for id_, process in before.items():
        is_alive = await asyncio.to_thread(_is_alive, process.identity)
        try:
            is_known = await _is_running(cri, id_, process)
        except CriError as error:
            if not error.is_not_found:
                raise
            if is_alive:
                sentences.append(f"the engine lost {process.name}")
            continue
        if is_known is None:
            continue
        if not is_alive:
            sentences.append(f"{process.name} ended")
        elif not is_known:
            sentences.append(f"the engine takes {process.name} for ended")
    return sentences


async def _is_running(cri: CriClient, id_: str, process: PodProcess) -> bool | None:
    """Return whether the engine says that it runs; None if it ended well by itself."""
    if process.is_sandbox:
        request = pb.PodSandboxStatusRequest(pod_sandbox_id=id_)
        sandbox = await cri.call(cri.runtime.PodSandboxStatus, request)
        return sandbox.status.state == pb.SANDBOX_READY
    reply = await cri.call(cri.runtime.ContainerStatus, pb.ContainerStatusRequest(container_id=id_))
    if reply.status.state == pb.CONTAINER_EXITED and reply.status.exit_code == 0:
        return None
    return reply.status.state == pb.CONTAINER_RUNNING


def _is_alive(identity: Identity) -> bool:
    return began(identity.pid) == identity.began_ticks and state(identity.pid) != "Z"


async def _info(cri: CriClient, status: Any, request: Any) -> Mapping[str, str]:
    """Return the verbose information of a status call, nothing for what is gone."""
    try:
        info: Mapping[str, str] = (await cri.call(status, request)).info
    except CriError as error:
        if error.is_not_found:
            return {}
        raise
    return info


def _add(
    processes: dict[str, PodProcess],
    id_: str,
    name: str,
    info: Mapping[str, str],
    *,
    is_sandbox: bool,
) -> None:
    try:
        pid = msgspec.json.decode(info.get("info", "{}"), type=_Info).pid
    except (msgspec.DecodeError, msgspec.ValidationError):
        return
    ticks = began(pid) if pid > 0 else None
    if ticks is not None:
        processes[id_] = PodProcess(name, is_sandbox, Identity(pid, ticks))
