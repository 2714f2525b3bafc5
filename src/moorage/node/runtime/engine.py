"""CRI calls of the node agent to a container engine, one method each.

Only the part of the CRI that the agent needs, with the kubelet's deadlines and its validation of
replies, so that the rest of the package builds no requests. Every failure is a `CriError`; stopping
or removing what does not exist succeeds. Source: CRI v1.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import grpc

from moorage.linux.descriptors import read_tail
from moorage.node.logs import LogReadError, last_of_log
from moorage.node.pod_facts.labels import POD_UID, parse_container_record
from moorage.wire.cri import CriClient, CriError, pb
from moorage.wire.cri.client import OUTPUT_TAIL, RECONNECT_S, REQUEST_TIMEOUT_S, SANDBOX_TIMEOUT_S

if TYPE_CHECKING:
    from grpc.aio import UnaryUnaryMultiCallable


# Termination message of a container: its message file, or the end of its log.
#
# Source: core/v1 `terminationMessagePath`, `terminationMessagePolicy`; limits of the kubelet (4 KiB
# from the file, 80 lines and 2 KiB from the log).

FALLBACK_TO_LOGS = "FallbackToLogsOnError"

_FILE_LIMIT_BYTES = 4096
_LOG_LINES = 80
_LOG_LIMIT_BYTES = 2048


async def termination_message(status: pb.ContainerStatus) -> str:
    """Return the message of a terminated container, preceded by the engine's own message."""
    if status.state != pb.CONTAINER_EXITED:
        return status.message
    memory = parse_container_record(status.annotations)
    left = await _from_file(status, memory.message_path)
    wants_log = memory.message_policy == FALLBACK_TO_LOGS and status.exit_code != 0
    if not left and wants_log and status.log_path:
        left = await _from_log(Path(status.log_path))
    return ": ".join(part for part in (status.message, left) if part)


async def _from_file(status: pb.ContainerStatus, path: str) -> str:
    if not path:
        return ""
    wanted = path if path.startswith("/") else f"/{path}"
    for mount in status.mounts:
        if mount.container_path == wanted:
            return await asyncio.to_thread(_last_bytes, Path(mount.host_path))
    return ""


def _last_bytes(path: Path) -> str:
    try:
        # The container controls this file, and may have mounted anything at its path.
        return read_tail(path, _FILE_LIMIT_BYTES).decode(errors="replace")
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"Error on reading termination log {path}: {error.strerror}"


async def _from_log(path: Path) -> str:
    try:
        return await last_of_log(path, _LOG_LINES, _LOG_LIMIT_BYTES)
    except LogReadError as error:
        return f"Error on reading termination message from logs: {error}"


OUTPUT_TAIL_BYTES = 10 * 1024
"""Of each stream of a probe or hook, as much as the kubelet keeps of a probe's."""

Request = TypeVar("Request")
Reply = TypeVar("Reply")


@dataclass(frozen=True, slots=True)
class EngineVersion:
    """Name and version of an engine."""

    name: str
    version: str


@dataclass(frozen=True, slots=True)
class ExecResult:
    """Result of a command in a container: output of both streams, and exit code."""

    stdout: bytes
    stderr: bytes
    exit_code: int


class Engine:
    """One container engine behind its CRI socket."""

    def __init__(self, cri: CriClient, reconnect_s: float = RECONNECT_S) -> None:
        self.cri = cri
        self._reconnect_s = reconnect_s

    async def version(self) -> EngineVersion:
        """Return name and version. Raises CriError when a field is missing."""
        reply = await self.cri.call(
            self.cri.runtime.Version, pb.VersionRequest(version="0.1.0"), timeout_s=10.0
        )
        if not (reply.runtime_name and reply.runtime_version and reply.runtime_api_version):
            raise _malformed("Version", "not all fields are set")
        return EngineVersion(reply.runtime_name, reply.runtime_version)

    async def status(self) -> pb.StatusResponse:
        """Return conditions, handlers and features. Raises CriError when conditions are missing."""
        reply = await self.cri.call(self.cri.runtime.Status, pb.StatusRequest(), timeout_s=10.0)
        if len(reply.status.conditions) < 2:
            raise _malformed("Status", "fewer than two conditions")
        return reply

    async def verbose_info(self) -> Mapping[str, str]:
        """Return the engine's verbose information; its format differs between engines."""
        request = pb.StatusRequest(verbose=True)
        return (await self.cri.call(self.cri.runtime.Status, request)).info

    async def cgroup_driver(self) -> pb.CgroupDriver.ValueType | None:
        """Return the engine's cgroup driver; None from an engine that does not report it."""
        try:
            reply = await self.cri.call(self.cri.runtime.RuntimeConfig, pb.RuntimeConfigRequest())
        except CriError as error:
            if error.is_unimplemented:
                return None
            raise
        return reply.linux.cgroup_driver if reply.HasField("linux") else None

    async def run_sandbox(self, config: pb.PodSandboxConfig, handler: str) -> str:
        """Create and start a sandbox under a handler; return its ID."""
        reply = await self.cri.call(
            self.cri.runtime.RunPodSandbox,
            pb.RunPodSandboxRequest(config=config, runtime_handler=handler),
            timeout_s=SANDBOX_TIMEOUT_S,
        )
        if not reply.pod_sandbox_id:
            raise _malformed("RunPodSandbox", "pod_sandbox_id is not set")
        return reply.pod_sandbox_id

    async def stop_sandbox(self, sandbox_id: str) -> None:
        """Stop a sandbox; succeeds if it does not exist."""
        await self._call_unless_gone(
            self.cri.runtime.StopPodSandbox, pb.StopPodSandboxRequest(pod_sandbox_id=sandbox_id)
        )

    async def remove_sandbox(self, sandbox_id: str) -> None:
        """Remove a sandbox; succeeds if it does not exist."""
        await self._call_unless_gone(
            self.cri.runtime.RemovePodSandbox, pb.RemovePodSandboxRequest(pod_sandbox_id=sandbox_id)
        )

    async def sandboxes(self, uid: str | None = None) -> Sequence[pb.PodSandbox]:
        """Return all sandboxes of the node, or of one pod."""
        request = pb.ListPodSandboxRequest()
        if uid is not None:
            request.filter.label_selector[POD_UID] = uid
        return (await self.cri.call(self.cri.runtime.ListPodSandbox, request)).items

    async def sandbox_status(self, sandbox_id: str) -> pb.PodSandboxStatus:
        """Return a sandbox's status. Raises CriError, also for a malformed reply."""
        reply = await self.cri.call(
            self.cri.runtime.PodSandboxStatus,
            pb.PodSandboxStatusRequest(pod_sandbox_id=sandbox_id),
        )
        if not (reply.status.id and reply.status.metadata.uid and reply.status.created_at):
            raise _malformed("PodSandboxStatus", "id, metadata or created_at is not set")
        return reply.status

    async def create_container(
        self, sandbox_id: str, config: pb.ContainerConfig, sandbox: pb.PodSandboxConfig
    ) -> str:
        """Create a container in a sandbox; return its ID."""
        reply = await self.cri.call(
            self.cri.runtime.CreateContainer,
            pb.CreateContainerRequest(
                pod_sandbox_id=sandbox_id, config=config, sandbox_config=sandbox
            ),
        )
        if not reply.container_id:
            raise _malformed("CreateContainer", "container_id is not set")
        return reply.container_id

    async def start_container(self, container_id: str) -> None:
        await self.cri.call(
            self.cri.runtime.StartContainer, pb.StartContainerRequest(container_id=container_id)
        )

    async def update_container(
        self, container_id: str, resources: pb.LinuxContainerResources
    ) -> None:
        """Change the resources of a running container."""
        await self.cri.call(
            self.cri.runtime.UpdateContainerResources,
            pb.UpdateContainerResourcesRequest(container_id=container_id, linux=resources),
        )

    async def update_sandbox(
        self,
        sandbox_id: str,
        overhead: pb.LinuxContainerResources,
        resources: pb.LinuxContainerResources,
    ) -> None:
        """Report the pod's new resources; engines without the call need not know them."""
        try:
            await self.cri.call(
                self.cri.runtime.UpdatePodSandboxResources,
                pb.UpdatePodSandboxResourcesRequest(
                    pod_sandbox_id=sandbox_id, overhead=overhead, resources=resources
                ),
            )
        except CriError as error:
            if not error.is_unimplemented:
                raise

    async def stop_container(self, container_id: str, grace_s: int) -> None:
        """Send the stop signal, and SIGKILL after `grace_s` seconds.

        Blocks until the container has ended. Succeeds if it does not exist.
        """
        await self._call_unless_gone(
            self.cri.runtime.StopContainer,
            pb.StopContainerRequest(container_id=container_id, timeout=grace_s),
            timeout_s=REQUEST_TIMEOUT_S + grace_s,
        )

    async def remove_container(self, container_id: str) -> None:
        """Remove a container; succeeds if it does not exist."""
        await self._call_unless_gone(
            self.cri.runtime.RemoveContainer, pb.RemoveContainerRequest(container_id=container_id)
        )

    async def containers(self, uid: str | None = None) -> Sequence[pb.Container]:
        """Return all containers of the node, or of one pod."""
        request = pb.ListContainersRequest()
        if uid is not None:
            request.filter.label_selector[POD_UID] = uid
        return (await self.cri.call(self.cri.runtime.ListContainers, request)).containers

    async def container_status(self, container_id: str) -> pb.ContainerStatus:
        """Return a container's status. Raises CriError, also for a malformed reply."""
        reply = await self.cri.call(
            self.cri.runtime.ContainerStatus,
            pb.ContainerStatusRequest(container_id=container_id),
        )
        if not (reply.status.id and reply.status.created_at):
            raise _malformed("ContainerStatus", "id or created_at is not set")
        return reply.status

    async def verbose_container_status(self, container_id: str) -> pb.ContainerStatusResponse:
        """Return a container's status with the engine's details, whose format is its own."""
        return await self.cri.call(
            self.cri.runtime.ContainerStatus,
            pb.ContainerStatusRequest(container_id=container_id, verbose=True),
        )

    async def reopen_log(self, container_id: str) -> None:
        """Have the engine reopen a container's log file."""
        await self.cri.call(
            self.cri.runtime.ReopenContainerLog,
            pb.ReopenContainerLogRequest(container_id=container_id),
        )

    async def exec_sync(
        self, container_id: str, command: Sequence[str], timeout_s: int
    ) -> ExecResult:
        """Run a command and wait for its exit; `timeout_s` 0 means no timeout.

        Each stream is cut to its last OUTPUT_TAIL_BYTES. An engine that is not Moorage's may send
        more, up to 1 MiB; what is longer raises CriError (RESOURCE_EXHAUSTED).
        """
        reply = await self.cri.call(
            self.cri.commands.ExecSync,
            pb.ExecSyncRequest(container_id=container_id, cmd=command, timeout=timeout_s),
            timeout_s=None if timeout_s == 0 else REQUEST_TIMEOUT_S + timeout_s,
            metadata={OUTPUT_TAIL: str(OUTPUT_TAIL_BYTES)},
        )
        tail = slice(-OUTPUT_TAIL_BYTES, None)
        return ExecResult(reply.stdout[tail], reply.stderr[tail], reply.exit_code)

    async def run_command(self, container_id: str, command: Sequence[str]) -> ExecResult:
        """Run a command for a user and wait for its exit; the CRI bounds its output."""
        reply = await self.cri.call(
            self.cri.runtime.ExecSync,
            pb.ExecSyncRequest(container_id=container_id, cmd=command),
            timeout_s=None,
        )
        return ExecResult(reply.stdout, reply.stderr, reply.exit_code)

    async def exec_url(self, request: pb.ExecRequest) -> str:
        """Return the URL at which the engine serves an interactive command's streams."""
        reply = await self.cri.call(self.cri.runtime.Exec, request, reconnect_s=self._reconnect_s)
        return _url("Exec", reply.url)

    async def attach_url(self, request: pb.AttachRequest) -> str:
        """Return the URL at which the engine serves a container's streams."""
        reply = await self.cri.call(self.cri.runtime.Attach, request, reconnect_s=self._reconnect_s)
        return _url("Attach", reply.url)

    async def port_forward_url(self, sandbox_id: str, ports: Sequence[int]) -> str:
        """Return the URL at which the engine forwards ports of a sandbox."""
        reply = await self.cri.call(
            self.cri.runtime.PortForward,
            pb.PortForwardRequest(pod_sandbox_id=sandbox_id, port=ports),
            reconnect_s=self._reconnect_s,
        )
        return _url("PortForward", reply.url)

    async def container_stats(self) -> Sequence[pb.ContainerStats]:
        reply = await self.cri.call(
            self.cri.runtime.ListContainerStats, pb.ListContainerStatsRequest()
        )
        return reply.stats

    async def sandbox_stats(self) -> Sequence[pb.PodSandboxStats]:
        """Return statistics per sandbox; empty from an engine without them."""
        try:
            reply = await self.cri.call(
                self.cri.runtime.ListPodSandboxStats, pb.ListPodSandboxStatsRequest()
            )
        except CriError as error:
            if error.is_unimplemented:
                return ()
            raise
        return reply.stats

    def events(self) -> AsyncIterator[pb.ContainerEventResponse]:
        """Stream container events. The first step raises CriError if the engine has no events."""
        return self.cri.stream(self.cri.runtime.GetContainerEvents, pb.GetEventsRequest())

    async def images(self) -> Sequence[pb.Image]:
        return (await self.cri.call(self.cri.images.ListImages, pb.ListImagesRequest())).images

    async def image(self, reference: str, handler: str = "") -> pb.Image | None:
        """Return the image of a tag, digest or ID; None when it is not on the node.

        With a handler, one that is for the platform of the handler's images.
        """
        reply = await self.cri.call(
            self.cri.images.ImageStatus,
            pb.ImageStatusRequest(image=pb.ImageSpec(image=reference, runtime_handler=handler)),
        )
        return reply.image if reply.HasField("image") and reply.image.id else None

    async def pull_image(
        self, image: pb.ImageSpec, auth: pb.AuthConfig | None, sandbox: pb.PodSandboxConfig
    ) -> str:
        """Pull an image; return the reference to create containers with. Has no deadline."""
        reply = await self.cri.call(
            self.cri.images.PullImage,
            pb.PullImageRequest(image=image, auth=auth, sandbox_config=sandbox),
            timeout_s=None,
        )
        if not reply.image_ref:
            raise _malformed("PullImage", "image_ref is not set")
        return reply.image_ref

    async def remove_image(self, reference: str) -> None:
        """Remove an image; succeeds if it does not exist."""
        await self._call_unless_gone(
            self.cri.images.RemoveImage, pb.RemoveImageRequest(image=pb.ImageSpec(image=reference))
        )

    async def image_filesystems(self) -> pb.ImageFsInfoResponse:
        return await self.cri.call(self.cri.images.ImageFsInfo, pb.ImageFsInfoRequest())

    async def _call_unless_gone(
        self,
        method: UnaryUnaryMultiCallable[Request, Reply],
        request: Request,
        *,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> None:
        try:
            await self.cri.call(method, request, timeout_s=timeout_s)
        except CriError as error:
            if not error.is_not_found:
                raise


def _url(method: str, url: str) -> str:
    if not url:
        raise _malformed(method, "url is not set")
    return url


def _malformed(method: str, why: str) -> CriError:
    return CriError(method, grpc.StatusCode.INTERNAL, f"malformed reply to {method}: {why}")
