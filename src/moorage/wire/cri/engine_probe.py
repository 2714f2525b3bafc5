"""Engine probe: is it reachable, is it CRI v1, is it suitable.

The checks run in the order in which a person would make them: the socket, the listener, the API
version, the configuration. Source: CRI v1, kubelet's checks of a runtime at its start.
"""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc
from grpc import aio

from moorage.api.nodes import NodeRuntimeHandler
from moorage.wire.cri.client import CriClient, CriError, HandlersUnknownError, handlers_of
from moorage.wire.cri.generated import runtime_pb2 as pb

_TIMEOUT_S = 5.0
_FORMER_VERSION = "/runtime.v1alpha2.RuntimeService/Version"
_DRIVER_NAMES = {pb.SYSTEMD: "systemd", pb.CGROUPFS: "cgroupfs"}
_ADVICE = "start the engine, or give its socket's path with --cri"


class UnusableEngineError(Exception):
    """An engine cannot be used; the text says why and what to do."""

    def __init__(self, endpoint: str, why: str) -> None:
        super().__init__(f"the engine at {endpoint} cannot be used: {why}")


@dataclass(frozen=True, slots=True)
class Probed:
    """A usable engine. `complaint` says what still keeps pods from running."""

    name: str
    version: str
    handlers: Sequence[NodeRuntimeHandler]
    complaint: str = ""


async def probe(endpoint: str, *, timeout_s: float = _TIMEOUT_S) -> Probed:
    """Probe the engine at `unix:///path`. Raises UnusableEngineError within seconds.

    `timeout_s` limits each call; all of them together take four times as long at most.
    """
    await asyncio.to_thread(_check_socket, endpoint, timeout_s)
    async with CriClient(endpoint) as cri:
        try:
            async with asyncio.timeout(4 * timeout_s):
                version = await _version(cri, timeout_s)
                await _check_driver(cri, version.runtime_name, timeout_s)
                complaint = await _condition_complaint(cri, timeout_s)
                handlers = await handlers_of(cri)
        except (CriError, HandlersUnknownError, TimeoutError) as error:
            why = str(error) or f"it does not answer within {4 * timeout_s:g} s"
            raise UnusableEngineError(endpoint, why) from error
    return Probed(version.runtime_name, version.runtime_version, handlers, complaint)


def _check_socket(endpoint: str, timeout_s: float) -> None:
    """Check that a process listens at the socket. Blocks. Raises UnusableEngineError."""
    path = Path(endpoint.removeprefix("unix://"))
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        raise UnusableEngineError(endpoint, f"there is no {path}: {_ADVICE}") from None
    except OSError as error:
        raise UnusableEngineError(endpoint, f"{path}: {error.strerror}") from error
    if not stat.S_ISSOCK(mode):
        raise UnusableEngineError(endpoint, f"{path} is not a socket: {_ADVICE}")
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(timeout_s)
        try:
            client.connect(str(path))
        except ConnectionRefusedError:
            why = f"nothing listens on {path}, left by an engine that has exited: {_ADVICE}"
            raise UnusableEngineError(endpoint, why) from None
        except PermissionError:
            why = f"{path} cannot be opened by this user: run as root, or give its group access"
            raise UnusableEngineError(endpoint, why) from None
        except OSError as error:
            raise UnusableEngineError(endpoint, f"{path}: {error.strerror or error}") from error


async def _version(cri: CriClient, timeout_s: float) -> pb.VersionResponse:
    request = pb.VersionRequest(version="0.1.0")
    try:
        reply = await cri.call(cri.runtime.Version, request, timeout_s=timeout_s)
    except CriError as error:
        why = await _why_no_version(cri.endpoint, error, timeout_s)
        raise UnusableEngineError(cri.endpoint, why) from error
    if not (reply.runtime_name and reply.runtime_version and reply.runtime_api_version):
        raise UnusableEngineError(cri.endpoint, "its Version reply lacks a field")
    return reply


async def _why_no_version(endpoint: str, error: CriError, timeout_s: float) -> str:
    if error.is_timeout:
        return f"it accepts connections but does not answer within {timeout_s:g} s"
    if not error.is_unimplemented:
        return f"what listens there is not a CRI server ({error.sentence})"
    if await _speaks_former_version(endpoint, timeout_s):
        return (
            "it speaks CRI v1alpha2 only: use containerd 1.6 or later, or CRI-O 1.26 or later, or "
            "leave out --cri for an engine of our own"
        )
    return (
        f"it speaks gRPC but not CRI v1 ({error.sentence}): with containerd, take cri out of "
        "disabled_plugins in its configuration"
    )


async def _speaks_former_version(endpoint: str, timeout_s: float) -> bool:
    options = [("grpc.default_authority", "localhost"), ("grpc.use_local_subchannel_pool", 1)]
    async with aio.insecure_channel(endpoint, options=options) as channel:
        call: aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(_FORMER_VERSION)
        try:
            await call(b"", timeout=timeout_s)
        except aio.AioRpcError as error:
            return error.code() is not grpc.StatusCode.UNIMPLEMENTED
    return True


async def _check_driver(cri: CriClient, engine: str, timeout_s: float) -> None:
    """Refuse the systemd cgroup driver; engines too old to report it have the default."""
    try:
        reply = await cri.call(
            cri.runtime.RuntimeConfig, pb.RuntimeConfigRequest(), timeout_s=timeout_s
        )
    except CriError as error:
        if error.is_unimplemented:
            return
        raise
    if reply.HasField("linux") and reply.linux.cgroup_driver != pb.CGROUPFS:
        driver = _DRIVER_NAMES.get(reply.linux.cgroup_driver, str(reply.linux.cgroup_driver))
        raise UnusableEngineError(
            cri.endpoint,
            f"{engine} uses the cgroup driver {driver!r}, and the node agent 'cgroupfs': set the "
            "engine to that and restart it (containerd: SystemdCgroup = false in the options of "
            'each runtime; CRI-O: cgroup_manager = "cgroupfs" and conmon_cgroup = "pod")',
        )


async def _condition_complaint(cri: CriClient, timeout_s: float) -> str:
    """Return the engine's complaint about pod networks. Raises UnusableEngineError if not ready."""
    status = await cri.call(cri.runtime.Status, pb.StatusRequest(), timeout_s=timeout_s)
    conditions = {condition.type: condition for condition in status.status.conditions}
    for name in ("RuntimeReady", "NetworkReady"):
        if name not in conditions:
            raise UnusableEngineError(cri.endpoint, f"its status lacks the condition {name}")
    runtime, network = conditions["RuntimeReady"], conditions["NetworkReady"]
    if not runtime.status:
        why = f"it reports that it is not ready: {runtime.reason}: {runtime.message}"
        raise UnusableEngineError(cri.endpoint, why)
    if network.status:
        return ""
    return (
        f"its network is not ready ({network.reason}: {network.message}): until it is, the node "
        "is NotReady and only pods on the host's network start"
    )
