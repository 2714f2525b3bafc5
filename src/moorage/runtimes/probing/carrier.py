"""Probe carriers: the seam through which a container is run under a handler, and its result read.

Two carriers implement it: one drives a node's container engine, the other creates ordinary pods
through the API of any Kubernetes. What a handler refuses, or does not finish in time, is a result;
an engine or API server that does not answer says nothing about the handler and is a CarrierError.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from types import MappingProxyType
from typing import Protocol

import msgspec

OUTPUT_LIMIT_BYTES = 64 * 1024
"""How much of a probe's output is kept."""
FLOOD_LIMIT_BYTES = 1024 * 1024
"""A probe with more output than this is ended."""
ERROR_LIMIT = 2048
"""Characters that are kept of an error text."""

USER = 0
"""User and group of a probe's program, whatever its image says: without root a probe of a
capability says nothing of the handler.
"""
WORKING_DIRECTORY = "/"
ENVIRONMENT: Mapping[str, str] = MappingProxyType({"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})
"""Environment of a probe's program, beside what an engine or a kubelet adds."""


class CarrierError(Exception):
    """The engine or API server cannot run probes now; says nothing about a handler."""


class Seccomp(enum.Enum):
    """Seccomp profile of a probe, as `seccompProfile.type` spells it."""

    UNCONFINED = "Unconfined"
    RUNTIME_DEFAULT = "RuntimeDefault"


class ProbeMount(msgspec.Struct, frozen=True, kw_only=True):
    """A directory of the node in a probe: always read-only.

    `is_recursive` asks for mounts below it to be read-only too, `sees_later_mounts` for the
    propagation HostToContainer.
    """

    host_path: str
    path: str
    is_recursive: bool = False
    sees_later_mounts: bool = False


class ProbeContainer(msgspec.Struct, frozen=True, kw_only=True):
    """The container of a probe, and the settings of its pod.

    CPU is in thousandths, memory in bytes; 0 stands for the carrier's own small limit.
    `pids_limit` 0 is the carrier's. Capabilities are spelled as in the API, `ALL` included.
    `devices` are paths of the node's devices, which the container has at the same path below
    /probe-devices.
    """

    image: str
    command: tuple[str, ...]
    has_terminal: bool = False
    is_privileged: bool = False
    capabilities: tuple[str, ...] = ()
    dropped_capabilities: tuple[str, ...] = ()
    seccomp: Seccomp = Seccomp.UNCONFINED
    has_apparmor: bool = False
    selinux_level: str = ""
    forbids_new_privileges: bool = False
    has_read_only_root: bool = False
    uses_host_network: bool = False
    uses_host_pid: bool = False
    uses_host_ipc: bool = False
    shares_processes: bool = False
    has_user_namespace: bool = False
    cpu_millis: int = 0
    memory_bytes: int = 0
    pids_limit: int = 0
    mounts: tuple[ProbeMount, ...] = ()
    devices: tuple[str, ...] = ()


_LEAST_S = 0.1
"""How long a container's end is awaited, even if its start took all of the time."""


class Outcome(enum.Enum):
    """How a probe ended.

    REFUSED: the sandbox or container was not started. CUT_OFF: it did not end by the deadline, or
    printed more than the limit. UNSUPPORTED: the carrier has no way to express the probe.
    """

    ENDED = "ended"
    REFUSED = "refused"
    CUT_OFF = "cut off"
    UNSUPPORTED = "unsupported"


class ProbeResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a probe did.

    `exit_code` counts with ENDED only; 128 + N for signal N. `output` is stdout and stderr together
    in the order of writing. `error` says why it was refused or cut off. `reason` is the engine's
    for an end, such as OOMKilled. `start_s` is from the request to the started container,
    `total_s` to the end.
    """

    outcome: Outcome
    exit_code: int = -1
    output: str = ""
    error: str = ""
    reason: str = ""
    start_s: float = 0.0
    total_s: float = 0.0

    @property
    def is_success(self) -> bool:
        """Whether the program ended with status 0."""
        return self.outcome is Outcome.ENDED and self.exit_code == 0


class ProbeRefusedError(Exception):
    """A kept-alive probe was not started; `result` says why."""

    def __init__(self, result: ProbeResult) -> None:
        super().__init__(result.error)
        self.result = result


class RunningProbe(Protocol):
    """A probe whose container is kept alive."""

    @property
    def cgroup(self) -> str:
        """Return the pod's cgroup, in the form of OCI's `cgroupsPath`; empty if unknown."""

    @property
    def start_s(self) -> float:
        """Return the seconds from the request to the started container."""

    async def exec(self, command: Sequence[str], *, deadline_s: float) -> ProbeResult:
        """Run a command in the container. Raises CarrierError."""

    async def resize(self, *, cpu_millis: int, memory_bytes: int, deadline_s: float) -> ProbeResult:
        """Change the container's limits; ENDED with status 0 if they are in force.

        Raises CarrierError.
        """

    async def checkpoint(self, *, deadline_s: float) -> ProbeResult:
        """Checkpoint the container and discard the result. Raises CarrierError."""

    async def fetch(self, port: int, *, deadline_s: float) -> ProbeResult:
        """Port-forward to a port of the pod and return what is received until its end.

        Raises CarrierError.
        """

    async def ended(self, *, deadline_s: float) -> ProbeResult:
        """Wait for the container's end. Raises CarrierError."""


class ProbeCarrier(Protocol):
    """Runs probes on one node. Everything that it starts carries a label of its own."""

    async def run(
        self, handler: str, container: ProbeContainer, *, deadline_s: float
    ) -> ProbeResult:
        """Run a container of a handler to its end, and remove its pod.

        An empty handler is the node's default one. At the deadline it is cut off, and is removed
        within seconds more; the next `clean` removes what cannot be removed then. Raises
        CarrierError.
        """

    def running(
        self, handler: str, container: ProbeContainer, *, deadline_s: float
    ) -> AbstractAsyncContextManager[RunningProbe]:
        """Start a container of a handler, and remove its pod on exit.

        The deadline is for the start. Raises ProbeRefusedError, CarrierError on entry.
        """

    async def clean(self) -> int:
        """Remove what earlier probes left on the node; return how many pods that were.

        Raises CarrierError.
        """


async def run_to_end(
    carrier: ProbeCarrier,
    handler: str,
    container: ProbeContainer,
    *,
    deadline_s: float,
) -> ProbeResult:
    """Run a container by `ProbeCarrier.running` as `ProbeCarrier.run` documents it."""
    started_s = time.monotonic()
    try:
        async with carrier.running(handler, container, deadline_s=deadline_s) as probe:
            left_s = deadline_s - (time.monotonic() - started_s)
            return await probe.ended(deadline_s=max(left_s, _LEAST_S))
    except ProbeRefusedError as error:
        return error.result


def shortened(text: str) -> str:
    """Return an error text on one line, within the limit."""
    line = " ".join(text.split())
    return line if len(line) <= ERROR_LIMIT else f"{line[: ERROR_LIMIT - 1]}…"
