"""Whether a runtime works, and what is said when it doesn't."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from moorage.engine.handlers.availability import InstalledRuntime, judge
from moorage.engine.handlers.features import Machine
from moorage.engine.handlers.runtimes import KNOWN_RUNTIMES
from moorage.linux.program import Version

RUNTIMES = {runtime.name: runtime for runtime in KNOWN_RUNTIMES}
GOOD = Machine(kernel=(6, 1), has_kvm=True)


def found(name: str, version: str = "9.9", **more: object) -> InstalledRuntime:
    runtime = RUNTIMES[name]
    numbers = tuple(map(int, version.split(".")))
    filled = InstalledRuntime(
        runtime, Path("/usr/bin") / runtime.program, Version(numbers, version)
    )
    return replace(filled, **more)  # type: ignore[arg-type]


AVAILABLE = {
    "runc": found("runc"),
    "an old crun": found("crun", "1.8.1"),
    "kata with KVM": found("kata"),
    "a kata variant with its configuration": found("kata-qemu", configuration=Path("/etc/kata")),
    "runsc without its shim": found("runsc"),
}


@pytest.mark.parametrize("one", AVAILABLE.values(), ids=AVAILABLE)
def test_what_has_all_it_needs_is_available(one: InstalledRuntime) -> None:
    assert judge(one, GOOD).is_available


UNAVAILABLE = {
    "not installed, packaged": (
        InstalledRuntime(RUNTIMES["crun"]),
        GOOD,
        "crun is not on PATH",
        "apt-get install crun",
    ),
    "not installed, not packaged": (
        InstalledRuntime(RUNTIMES["youki"]),
        GOOD,
        "youki is not on PATH",
        "install youki from https://github.com/youki-dev/youki/releases",
    ),
    "kata without KVM": (
        found("kata"),
        replace(GOOD, has_kvm=False),
        "kata needs hardware virtualization, and /dev/kvm cannot be opened",
        "run on a host with KVM, or turn on nested virtualization for this one",
    ),
    "crun with hugetlb on version 2": (
        found("crun"),
        replace(GOOD, is_hugetlb_apart=True),
        "crun refuses cgroup version 1 while the hugetlb controller is on version 2",
        "mkdir -p /sys/fs/cgroup/hugetlb && "
        "mount -t cgroup -o hugetlb cgroup /sys/fs/cgroup/hugetlb",
    ),
    "a program that hangs": (
        found("runc", failure="no answer within 3 s"),
        GOOD,
        "/usr/bin/runc does not answer: no answer within 3 s",
        "run `/usr/bin/runc --version` by hand and correct what it reports",
    ),
}


@pytest.mark.parametrize(
    ("one", "machine", "reason", "remedy"), UNAVAILABLE.values(), ids=UNAVAILABLE
)
def test_verdict_names_what_is_missing_and_what_to_do(
    one: InstalledRuntime, machine: Machine, reason: str, remedy: str
) -> None:
    verdict = judge(one, machine)
    assert (verdict.reason, verdict.remedy) == (reason, remedy)


def test_a_kata_variant_without_its_configuration_is_not_another_hypervisor() -> None:
    verdict = judge(found("kata-fc"), GOOD)
    assert "configuration-fc.toml" in verdict.reason
    assert "/etc/kata-containers/configuration-fc.toml" in verdict.remedy


def test_no_two_runtimes_share_a_handler_name() -> None:
    names = [name for runtime in KNOWN_RUNTIMES for name in runtime.handlers]
    assert len(set(names)) == len(names)
