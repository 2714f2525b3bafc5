"""A container engine in memory, behind the methods the agent calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import grpc

from moorage.node.pod_facts.labels import OWNER, POD_UID
from moorage.node.runtime.engine import ExecResult
from moorage.wire.cri import CriError, pb
from tests.clocks import FakeClock

_NANO = 1_000_000_000


class FakeEngine:
    """Sandboxes and containers as messages; the test ends containers with `end`.

    Every call that changes something is kept in `calls`. `stubborn` containers ignore being
    stopped until `end`; `handlers` are those sandboxes may ask for. `reports_handlers` false leaves
    `runtime_handler` empty, as CRI-O does; `runs_everything_under` is an engine's own choice.
    `stops_sandbox_at_start`: the next start finds its sandbox stopped from outside.
    """

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._count = 0
        self._sandboxes: dict[str, pb.PodSandboxStatus] = {}
        self._containers: dict[str, tuple[str, pb.ContainerStatus]] = {}
        self.calls: list[str] = []
        self.handlers = {"", "crun"}
        self.reports_handlers = True
        self.runs_everything_under = ""
        self.stops_sandbox_at_start = False
        self.usage: dict[str, int] = {}
        self.failing: dict[str, str] = {}
        self.hooks: dict[str, int] = {}

    # what the test does

    def end(self, name: str, code: int = 0) -> None:
        """A container's process ends by itself."""
        for _, status in self._containers.values():
            if status.metadata.name == name and status.state == pb.CONTAINER_RUNNING:
                self._end(status, code)
                return
        raise AssertionError(f"{name} does not run")

    def kill_sandbox(self) -> None:
        """The newest sandbox dies, with everything in it."""
        newest = list(self._sandboxes.values())[-1]
        newest.state = pb.SANDBOX_NOTREADY
        for sandbox_id, status in self._containers.values():
            if sandbox_id == newest.id and status.state == pb.CONTAINER_RUNNING:
                self._end(status, 137)

    def forget_everything(self) -> None:
        """The machine was rebooted."""
        self._sandboxes.clear()
        self._containers.clear()

    def age_sandboxes(self) -> None:
        """Make sandboxes those of an earlier version: owned by a bare node name, no record."""
        for sandbox in self._sandboxes.values():
            sandbox.labels[OWNER] = "n1"
            sandbox.annotations.clear()

    @property
    def running(self) -> list[str]:
        return [
            status.metadata.name
            for _, status in self._containers.values()
            if status.state == pb.CONTAINER_RUNNING
        ]

    @property
    def is_empty(self) -> bool:
        return not self._sandboxes and not self._containers

    # sandboxes

    async def run_sandbox(self, config: pb.PodSandboxConfig, handler: str) -> str:
        self._call("run_sandbox", handler)
        if handler not in self.handlers:
            raise _refused("RunPodSandbox", f'no runtime for "{handler}" is configured')
        sandbox_id = self._id("s")
        self._sandboxes[sandbox_id] = pb.PodSandboxStatus(
            id=sandbox_id,
            metadata=config.metadata,
            state=pb.SANDBOX_READY,
            created_at=self._now_ns(),
            network=pb.PodSandboxNetworkStatus(ip=f"10.1.0.{self._count}"),
            labels=config.labels,
            annotations=config.annotations,
            runtime_handler=(self.runs_everything_under or handler)
            if self.reports_handlers
            else "",
        )
        return sandbox_id

    async def stop_sandbox(self, sandbox_id: str) -> None:
        self._call("stop_sandbox", sandbox_id)
        sandbox = self._sandboxes.get(sandbox_id)
        if sandbox is not None:
            sandbox.state = pb.SANDBOX_NOTREADY

    async def remove_sandbox(self, sandbox_id: str) -> None:
        self._call("remove_sandbox", sandbox_id)
        self._sandboxes.pop(sandbox_id, None)
        for key in [key for key, (inside, _) in self._containers.items() if inside == sandbox_id]:
            del self._containers[key]

    async def sandboxes(self, uid: str | None = None) -> list[pb.PodSandbox]:
        return [
            pb.PodSandbox(id=sandbox.id, state=sandbox.state, labels=sandbox.labels)
            for sandbox in self._sandboxes.values()
            if uid in (None, sandbox.labels[POD_UID])
        ]

    async def sandbox_status(self, sandbox_id: str) -> pb.PodSandboxStatus:
        status: pb.PodSandboxStatus = _copy(_found(self._sandboxes, sandbox_id))
        return status

    # containers

    async def create_container(
        self, sandbox_id: str, config: pb.ContainerConfig, sandbox: pb.PodSandboxConfig
    ) -> str:
        self._call("create", config.metadata.name)
        container_id = self._id("c")
        status = pb.ContainerStatus(
            id=container_id,
            metadata=config.metadata,
            state=pb.CONTAINER_CREATED,
            created_at=self._now_ns(),
            image=config.image,
            image_ref=config.image.image,
            labels=config.labels,
            annotations=config.annotations,
            log_path=f"{sandbox.log_directory}/{config.log_path}",
            mounts=config.mounts,
        )
        self._containers[container_id] = (sandbox_id, status)
        return container_id

    async def start_container(self, container_id: str) -> None:
        sandbox_id, status = _found(self._containers, container_id)
        self._call("start", status.metadata.name)
        if self.stops_sandbox_at_start:
            self.stops_sandbox_at_start = False
            self._sandboxes[sandbox_id].state = pb.SANDBOX_NOTREADY
            raise _refused("StartContainer", "can't find shim for sandbox")
        status.state, status.started_at = pb.CONTAINER_RUNNING, self._now_ns()

    async def update_container(
        self, container_id: str, resources: pb.LinuxContainerResources
    ) -> None:
        _, status = _found(self._containers, container_id)
        limit = resources.memory_limit_in_bytes
        self._call("update", f"{status.metadata.name} {resources.cpu_shares} {limit}")

    async def update_sandbox(self, sandbox_id: str, overhead: Any, resources: Any) -> None:
        """Does nothing, as most engines."""

    async def container_stats(self) -> list[pb.ContainerStats]:
        return [
            pb.ContainerStats(
                attributes=pb.ContainerAttributes(id=key),
                memory=pb.MemoryUsage(usage_bytes=pb.UInt64Value(value=self.usage[name])),
            )
            for key, (_, status) in self._containers.items()
            if (name := status.metadata.name) in self.usage
        ]

    async def stop_container(self, container_id: str, grace_s: int) -> None:
        container = self._containers.get(container_id)
        if container is None:
            return
        self._call("stop", f"{container[1].metadata.name} {grace_s}")
        if container[1].state == pb.CONTAINER_RUNNING:
            self._end(container[1], 143)

    async def remove_container(self, container_id: str) -> None:
        self._call("remove", container_id)
        self._containers.pop(container_id, None)

    async def containers(self, uid: str | None = None) -> list[pb.Container]:
        return [
            pb.Container(
                id=key, pod_sandbox_id=inside, state=container.state, labels=container.labels
            )
            for key, (inside, container) in self._containers.items()
            if uid in (None, container.labels[POD_UID])
        ]

    async def container_status(self, container_id: str) -> pb.ContainerStatus:
        status: pb.ContainerStatus = _copy(_found(self._containers, container_id)[1])
        return status

    async def exec_sync(
        self, container_id: str, command: Sequence[str], timeout_s: int
    ) -> ExecResult:
        del timeout_s
        _, status = _found(self._containers, container_id)
        self._call("exec", f"{status.metadata.name} {' '.join(command)}")
        return ExecResult(b"", b"", self.hooks.get(status.metadata.name, 0))

    # images

    async def image(self, reference: str, handler: str = "") -> pb.Image:
        del handler
        return pb.Image(id=f"sha256:{reference}", size=1)

    # inside

    def _call(self, what: str, detail: str) -> None:
        self.calls.append(f"{what} {detail}".strip())
        if what in self.failing:
            raise _refused(what, self.failing[what])

    def _end(self, status: pb.ContainerStatus, code: int) -> None:
        status.state, status.exit_code = pb.CONTAINER_EXITED, code
        status.reason = "Completed" if code == 0 else "Error"
        status.finished_at = self._now_ns()

    def _id(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def _now_ns(self) -> int:
        # Two things are never made at the same moment.
        self._count += 1
        return int(self._clock.now().timestamp()) * _NANO + self._count


def _copy(message: Any) -> Any:
    copied = type(message)()
    copied.CopyFrom(message)
    return copied


def _found(items: dict[str, Any], key: str) -> Any:
    if key not in items:
        raise CriError("Status", grpc.StatusCode.NOT_FOUND, f"{key} not found")
    return items[key]


def _refused(method: str, sentence: str) -> CriError:
    return CriError(method, grpc.StatusCode.UNKNOWN, sentence)
