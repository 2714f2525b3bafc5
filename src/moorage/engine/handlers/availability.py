"""Availability of a runtime on a host: the reason it does not work, and the remedy.

Pure: takes the probed facts, returns a verdict. The rules are ordered as an administrator would fix
the problems, and the first rule that fails gives the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from moorage.engine.handlers.features import Machine
from moorage.engine.handlers.runtimes import Runtime
from moorage.linux.program import Version
from moorage.linux.trust import Distrust


@dataclass(frozen=True, slots=True)
class InstalledRuntime:
    """A runtime's program on this host; `path` is None when it is not installed.

    `program` is the program as spelled in the handler file, and `defined_in` that file.
    """

    runtime: Runtime
    path: Path | None = None
    version: Version | None = None
    configuration: Path | None = None
    failure: str = ""
    """Why the program, although present, did not answer the version query."""
    program: str = ""
    defined_in: Path | None = None
    distrust: Distrust | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of `judge`: the reason and the remedy, both empty when the runtime is available."""

    reason: str = ""
    remedy: str = ""

    @property
    def is_available(self) -> bool:
        return not self.reason


AVAILABLE = Verdict()
_Rule = Callable[[InstalledRuntime, Machine], Verdict | None]


def judge(installed: InstalledRuntime, machine: Machine) -> Verdict:
    """Return the verdict on a runtime."""
    for rule in _RULES:
        verdict = rule(installed, machine)
        if verdict is not None:
            return verdict
    return AVAILABLE


def _is_installed(installed: InstalledRuntime, _machine: Machine) -> Verdict | None:
    runtime = installed.runtime
    if installed.path is not None:
        return None
    remedy = _installation(runtime)
    if installed.defined_in is not None:
        remedy = f"{remedy}, or correct {installed.defined_in}"
    if Path(installed.program).is_absolute():
        return Verdict(f"{installed.program} is not an executable file", remedy)
    return Verdict(f"{installed.program or runtime.program} is not on PATH", remedy)


def _is_trusted(installed: InstalledRuntime, _machine: Machine) -> Verdict | None:
    return None if installed.distrust is None else distrusted(installed.distrust)


def distrusted(problem: Distrust) -> Verdict:
    """Return the verdict on a file that runs as root and is writable by other users."""
    return Verdict(
        f"{problem.path} {problem.problem}, so another user may have replaced it",
        f"inspect it, then {problem.remedy}",
    )


def _answers(installed: InstalledRuntime, _machine: Machine) -> Verdict | None:
    if not installed.failure:
        return None
    question = " ".join((str(installed.path), *installed.runtime.version_arguments))
    return Verdict(
        f"{installed.path} does not answer: {installed.failure}",
        f"run `{question}` by hand and correct what it reports",
    )


def _has_configuration(installed: InstalledRuntime, _machine: Machine) -> Verdict | None:
    candidates = installed.runtime.configurations
    if not candidates or installed.configuration is not None:
        return None
    return Verdict(
        f"none of its configuration files exists: {', '.join(map(str, candidates))}",
        f"install {installed.runtime.name}'s configuration as {candidates[0]}",
    )


def _has_kvm(installed: InstalledRuntime, machine: Machine) -> Verdict | None:
    if not installed.runtime.needs_kvm or machine.has_kvm:
        return None
    return Verdict(
        f"{installed.runtime.name} needs hardware virtualization, and /dev/kvm cannot be opened",
        "run on a host with KVM, or turn on nested virtualization for this one",
    )


def _can_use_cgroups(installed: InstalledRuntime, machine: Machine) -> Verdict | None:
    if not (installed.runtime.needs_hugetlb_with_v1 and machine.is_hugetlb_apart):
        return None
    return Verdict(
        f"{installed.runtime.name} refuses cgroup version 1 while the hugetlb controller is on "
        "version 2",
        "mkdir -p /sys/fs/cgroup/hugetlb && "
        "mount -t cgroup -o hugetlb cgroup /sys/fs/cgroup/hugetlb",
    )


def _installation(runtime: Runtime) -> str:
    if runtime.package:
        return f"apt-get install {runtime.package}"
    return f"install {runtime.program}" + (f" from {runtime.source}" if runtime.source else "")


_RULES: tuple[_Rule, ...] = (
    _is_installed,
    _is_trusted,
    _answers,
    _has_configuration,
    _has_kvm,
    _can_use_cgroups,
)
