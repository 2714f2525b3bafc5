"""Whether a runtime works under an engine on a machine; if not, why, and what to do.

Pure: what was found on the machine goes in, a verdict comes out. The rules stand in the order a
person would mend things in, and the first that fails is the reason given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from moorage.cri.version import Version
from moorage.handlers.runtimes import Runtime, shim_program


@dataclass(frozen=True, slots=True)
class Machine:
    """What runtimes need of the host. `kernel` is (major, minor).

    `is_hugetlb_apart`: a hybrid cgroup layout whose hugetlb controller is on version 2.
    """

    kernel: tuple[int, int]
    has_kvm: bool
    is_hugetlb_apart: bool = False


@dataclass(frozen=True, slots=True)
class Containerd:
    """The engine that would run the runtimes, and the shims it can find (program → path)."""

    version: Version
    shims: Mapping[str, Path] = field(default_factory=dict)

    @property
    def reports_features(self) -> bool:
        """Before 2.0, containerd drops recursive read-only mounts and user namespaces silently."""
        return self.version.major >= 2


@dataclass(frozen=True, slots=True)
class Found:
    """A runtime's program on this machine; no path when it isn't installed."""

    runtime: Runtime
    path: Path | None = None
    version: Version | None = None
    configuration: Path | None = None
    failure: str = ""
    """Why the program could not be asked, when it is there and doesn't answer."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Empty texts mean available."""

    reason: str = ""
    remedy: str = ""

    @property
    def is_available(self) -> bool:
        return not self.reason


_Rule = Callable[[Found, Containerd, Machine], Verdict | None]


def judge(found: Found, engine: Containerd | None, machine: Machine) -> Verdict:
    """The verdict on a runtime under containerd; without one (None), on the program alone."""
    rules = _MACHINE_RULES if engine is None else _RULES
    for rule in rules:
        verdict = rule(found, engine or _ANY_ENGINE, machine)
        if verdict is not None:
            return verdict
    return Verdict()


def _is_installed(found: Found, _engine: Containerd, _machine: Machine) -> Verdict | None:
    runtime = found.runtime
    if found.path is not None:
        return None
    return Verdict(f"{runtime.program} is not on PATH", _installation(runtime))


def _answers(found: Found, _engine: Containerd, _machine: Machine) -> Verdict | None:
    if not found.failure:
        return None
    return Verdict(
        f"{found.path} does not answer: {found.failure}",
        f"run `{found.path} {' '.join(found.runtime.version_arguments)}` by hand and mend it",
    )


def _has_configuration(found: Found, _engine: Containerd, _machine: Machine) -> Verdict | None:
    candidates = found.runtime.configurations
    if not candidates or found.configuration is not None:
        return None
    return Verdict(
        f"none of its configuration files exists: {', '.join(map(str, candidates))}",
        f"install {found.runtime.name}'s configuration as {candidates[0]}",
    )


def _has_kvm(found: Found, _engine: Containerd, machine: Machine) -> Verdict | None:
    if not found.runtime.needs_kvm or machine.has_kvm:
        return None
    return Verdict(
        f"{found.runtime.name} needs hardware virtualization, and /dev/kvm cannot be opened",
        "run on a host with KVM, or turn on nested virtualization for this one",
    )


def _has_shim(found: Found, engine: Containerd, _machine: Machine) -> Verdict | None:
    runtime = found.runtime
    shim = shim_program(runtime.shim_type)
    if runtime.is_shim or shim in engine.shims:
        return None
    where = runtime.shim_source or "containerd's own package"
    return Verdict(
        f"{runtime.program} is installed, but containerd needs its shim {shim}, "
        "which is not on PATH",
        f"install {shim} from {where}",
    )


def _is_new_enough(found: Found, engine: Containerd, _machine: Machine) -> Verdict | None:
    needed = found.runtime.minimum_versions.get(engine.version.major)
    if needed is None or found.version is None or not found.version.is_before(needed):
        return None
    first = ".".join(map(str, needed))
    return Verdict(
        f"{found.runtime.name} {found.version} refuses the OCI version that containerd "
        f"{engine.version} writes",
        f"install {found.runtime.name} {first} or later",
    )


def _can_use_cgroups(found: Found, _engine: Containerd, machine: Machine) -> Verdict | None:
    if not (found.runtime.needs_hugetlb_with_v1 and machine.is_hugetlb_apart):
        return None
    return Verdict(
        f"{found.runtime.name} refuses cgroup version 1 while the hugetlb controller is on "
        "version 2",
        "mkdir -p /sys/fs/cgroup/hugetlb && "
        "mount -t cgroup -o hugetlb cgroup /sys/fs/cgroup/hugetlb",
    )


def _installation(runtime: Runtime) -> str:
    if runtime.package:
        return f"apt-get install {runtime.package}"
    return f"install {runtime.program} from {runtime.source}"


_MACHINE_RULES: tuple[_Rule, ...] = (
    _is_installed,
    _answers,
    _has_configuration,
    _has_kvm,
    _can_use_cgroups,
)
_RULES: tuple[_Rule, ...] = (*_MACHINE_RULES, _has_shim, _is_new_enough)
_ANY_ENGINE = Containerd(Version((0,), "0"))
