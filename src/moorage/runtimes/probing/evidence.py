"""Evidence of a handler: the results of its probes, and the facts of its node."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from moorage.api.runtime_group import RuntimeProgram
from moorage.engine.handlers.runtimes import KNOWN_RUNTIMES, Runtime
from moorage.runtimeclass.isolation import Isolation
from moorage.runtimes.probing.cache import ProbedHandler
from moorage.runtimes.probing.carrier import Outcome, ProbeResult
from moorage.runtimes.probing.host import HostFacts
from moorage.runtimes.probing.programs import ProgramOutput, architectures, parse_output
from moorage.runtimes.probing.programs.facts import KERNEL_LOG
from moorage.runtimes.probing.suite import PLAIN

# Isolation of a handler, from what a container under it sees of the kernel.
#
# Pure. The boot id says whether the kernel is the node's own. Sources: proc(5), random(4); gVisor's
# `/proc/version` and kernel log; Intel TDX's and the hypervisors' processor flags.

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_VERSION = "/proc/version"
_PRODUCT = "/sys/class/dmi/id/product_name"
_GVISOR_DATE = "Sun Jan 10 15:06:54 PST 2016"
"""Build date that every gVisor reports."""
_GVISOR = "gvisor"
_CONFIDENTIAL_FLAGS = frozenset({"tdx_guest", "sev_guest"})
_HYPERVISOR_FLAG = "hypervisor"


def isolation_of(output: ProgramOutput, host: HostFacts) -> Isolation | None:
    """Return the level that the facts of a plain probe prove; None if they prove none."""
    version = output.section(_VERSION)
    if _GVISOR_DATE in version or _GVISOR in f"{version}{output.section(KERNEL_LOG)}".lower():
        return Isolation.USER_SPACE_KERNEL
    boot_id = output.section(_BOOT_ID)
    if not boot_id or not host.boot_id:
        return None
    if boot_id == host.boot_id:
        return Isolation.SHARED_KERNEL
    flags = _processor_flags(output.section("/proc/cpuinfo"))
    if flags & _CONFIDENTIAL_FLAGS:
        return Isolation.CONFIDENTIAL_VIRTUAL_MACHINE
    product = output.section(_PRODUCT)
    if _HYPERVISOR_FLAG in flags or (product and host.product and product != host.product):
        return Isolation.VIRTUAL_MACHINE
    return None


def _processor_flags(cpuinfo: str) -> frozenset[str]:
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()


# States of a node's handlers, as far as probes have found them.


class Working(enum.Enum):
    """Whether a handler works. PENDING: it has not been probed yet."""

    PENDING = "pending"
    YES = "yes"
    NO = "no"


class KnownHandler(msgspec.Struct, frozen=True, kw_only=True):
    """A handler that an engine lists.

    `definition` is what defines it, without its name; `programs` are the files that it runs, and
    its shim's configuration. `start_deadline_s` is how long its first container may take, 0 for the
    usual time. `is_default` is of the handler that pods without a class get. `file` is its file,
    for people.
    """

    name: str
    definition: str = ""
    programs: tuple[Path, ...] = ()
    program: RuntimeProgram = RuntimeProgram()
    file: str = ""
    is_default: bool = False
    start_deadline_s: float = 0.0


class HandlerState(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a handler. `reason` and `remedy` are of one that does not work."""

    handler: KnownHandler
    engine: str = ""
    fingerprint: str = ""
    digest: str = ""
    working: Working = Working.PENDING
    reason: str = ""
    remedy: str = ""
    probed: ProbedHandler | None = None

    @property
    def is_working(self) -> bool:
        return self.working is Working.YES

    @property
    def lacks_features(self) -> bool:
        """Whether the handler works and its features were not probed yet."""
        return self.is_working and not (self.probed and self.probed.features)


def same_handlers(
    states: Mapping[str, HandlerState], runtimes: Iterable[Runtime] = KNOWN_RUNTIMES
) -> dict[str, str]:
    """Return which handlers are another one under a second name, as `runsc` of gVisor is `gvisor`.

    They are names of one known runtime with one fingerprint: a handler whose file says something
    else than the other's is a handler of its own, and so is a copy under a name of one's own.
    """
    same: dict[str, str] = {}
    for runtime in runtimes:
        first: dict[str, str] = {}
        for name in runtime.handlers_by_preference:
            state = states.get(name)
            if state is None or not state.fingerprint:
                continue
            preferred = first.setdefault(state.fingerprint, name)
            if preferred != name:
                same[name] = preferred
    return same


_MESSAGE_LIMIT = 400
# Names and ids that differ each time must not make a finding a new one.
_RANDOM = re.compile(r"probe-[a-z0-9-]*[0-9a-f]{8}|\b[0-9a-f]{8,}\b|\bpid \d+")


class Evidence(msgspec.Struct, frozen=True, dict=True):
    """Results by the name of their probe, `PROBE/STEP` for steps of a kept one."""

    host: HostFacts
    results: dict[str, ProbeResult]

    def result(self, probe: str) -> ProbeResult | None:
        """Return a probe's result, None if it was not run."""
        return self.results.get(probe)

    def output(self, probe: str) -> ProgramOutput:
        """Return the output of a probe's program; empty without a result."""
        return self._outputs.get(probe, ProgramOutput())

    @property
    def has_programs(self) -> bool:
        """Whether there are probe programs for the node's architecture."""
        return self.host.architecture in architectures()

    @property
    def kernel(self) -> str:
        """Return the kernel's version as a container sees it; empty if unknown."""
        words = self.output(PLAIN).section("/proc/version").split()
        return words[2] if len(words) > 2 else ""

    @cached_property
    def _outputs(self) -> dict[str, ProgramOutput]:
        return {
            name: parse_output(result.output)
            for name, result in self.results.items()
            if result.outcome is Outcome.ENDED
        }


def stable_text(text: str) -> str:
    """Return an engine's text without what differs each time, on one line and shortened."""
    line = _RANDOM.sub("…", " ".join(text.split()))
    return line if len(line) <= _MESSAGE_LIMIT else f"{line[: _MESSAGE_LIMIT - 1]}…"


def facts_of(result: ProbeResult) -> dict[str, Any]:
    """Return a result for people: how it ended, and the first lines of its output."""
    return {
        "outcome": result.outcome.value,
        "exit_code": result.exit_code,
        "error": result.error,
        "output": result.output,
    }
