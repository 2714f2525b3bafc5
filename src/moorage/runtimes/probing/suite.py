"""Suite of probes: what is run under a handler, by name, with the settings of each pod.

The features that each answers are in `verdicts`. The first probe, `plain`, is also the one by which
a handler counts as working.
"""

from __future__ import annotations

from typing import Any

import msgspec

from moorage.runtimes.probing.carrier import ProbeContainer, ProbeMount, Seccomp
from moorage.runtimes.probing.host import HostFacts
from moorage.runtimes.probing.programs import PROBE_IMAGE, program_path
from moorage.runtimes.probing.programs.devices import BLOCK_DEVICES, CHARACTER_DEVICE, GPU_DEVICES
from moorage.runtimes.probing.programs.facts import RECURSIVE_MOUNT

SUITE_VERSION = 2
"""Raised whenever a probe or a verdict changes, so that cached results are not used."""

MEMORY_BYTES = 192 * 1024 * 1024
"""Memory limit of the probes that have one: more than gVisor's own processes need."""
GROWN_MEMORY_BYTES = 224 * 1024 * 1024
CPU_MILLIS, LARGE_CPU_MILLIS = 100, 1000
PIDS_LIMIT = 128
_SELINUX_LEVEL = "s0:c1,c2"

PLAIN = "plain"
_ALL = ("ALL",)


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """A probe: its program, the settings of its container, and whether it is kept alive.

    A kept container gets a command, a resize, a connection and a checkpoint, in this order.
    `deadline_s` is for the run, or for the start and each step of a kept one.
    """

    program: str
    settings: dict[str, Any] = {}
    is_kept: bool = False
    deadline_s: float = 20.0

    def container(self, host: HostFacts) -> ProbeContainer:
        """Return the container of the probe on a node."""
        settings = dict(self.settings)
        candidates = settings.pop("devices", ())
        present = [path for path in candidates if path in (host.devices or ())]
        return ProbeContainer(
            image=PROBE_IMAGE,
            command=(program_path(self.program),),
            devices=tuple(present[:1]),
            **settings,
        )


PROBES: dict[str, Probe] = {
    PLAIN: Probe(program="facts"),
    "host-network": Probe(program="facts", settings={"uses_host_network": True}),
    "host-pid": Probe(program="facts", settings={"uses_host_pid": True}),
    "host-ipc": Probe(program="facts", settings={"uses_host_ipc": True}),
    "shared-processes": Probe(program="facts", settings={"shares_processes": True}),
    "user-namespace": Probe(program="facts", settings={"has_user_namespace": True}),
    "privileged": Probe(program="facts", settings={"is_privileged": True}),
    "seccomp": Probe(program="facts", settings={"seccomp": Seccomp.RUNTIME_DEFAULT}),
    "apparmor": Probe(program="facts", settings={"has_apparmor": True}),
    "selinux": Probe(program="facts", settings={"selinux_level": _SELINUX_LEVEL}),
    "restricted": Probe(
        program="facts",
        settings={"forbids_new_privileges": True, "has_read_only_root": True},
    ),
    "nesting": Probe(program="nesting", settings={"is_privileged": True}),
    "recursive-mount": Probe(
        program="facts",
        settings={
            "mounts": (ProbeMount(host_path="/dev", path=RECURSIVE_MOUNT, is_recursive=True),)
        },
    ),
    "propagation": Probe(
        program="facts",
        settings={
            "mounts": (ProbeMount(host_path="/dev", path=RECURSIVE_MOUNT, sees_later_mounts=True),)
        },
    ),
    "device": Probe(program="devices", settings={"devices": (CHARACTER_DEVICE,)}),
    "gpu": Probe(program="devices", settings={"devices": GPU_DEVICES}),
    "block-device": Probe(program="devices", settings={"devices": BLOCK_DEVICES}),
    "networks": Probe(program="networks", settings={"capabilities": ("NET_RAW",)}),
    "kept": Probe(
        program="serve",
        settings={"cpu_millis": LARGE_CPU_MILLIS, "memory_bytes": MEMORY_BYTES},
        is_kept=True,
    ),
    "cpu-small": Probe(program="cpu", settings={"cpu_millis": CPU_MILLIS}),
    "cpu-large": Probe(program="cpu", settings={"cpu_millis": LARGE_CPU_MILLIS}),
    "memory": Probe(program="memory", settings={"memory_bytes": MEMORY_BYTES}),
    "processes": Probe(program="processes", settings={"pids_limit": PIDS_LIMIT}),
    "limited": Probe(
        program="facts",
        settings={"cpu_millis": LARGE_CPU_MILLIS, "memory_bytes": MEMORY_BYTES},
    ),
    "terminal": Probe(program="facts", settings={"has_terminal": True}),
    "system-calls": Probe(program="system-calls", settings={"capabilities": _ALL}),
    "capabilities": Probe(program="capabilities", settings={"capabilities": _ALL}),
}

EXEC, RESIZE, FETCH, CHECKPOINT = "exec", "resize", "fetch", "checkpoint"
"""Steps of a kept probe; their results are in the evidence as `kept/STEP`."""
