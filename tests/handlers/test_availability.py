"""Whether a runtime works, and what is said when it doesn't."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from moorage.handlers.availability import Containerd, InstalledRuntime, judge
from moorage.handlers.machine import Machine
from moorage.handlers.runtimes import KNOWN_RUNTIMES, shim_program
from moorage.linux.program_version import Version

RUNTIMES = {runtime.name: runtime for runtime in KNOWN_RUNTIMES}
RUNC_SHIM = "containerd-shim-runc-v2"
OLD = Containerd(Version((1, 6, 20), "1.6.20"), {RUNC_SHIM: Path("/usr/bin") / RUNC_SHIM})
NEW = replace(OLD, version=Version((2, 1, 0), "2.1.0"))
GOOD = Machine(kernel=(6, 1), has_kvm=True)


def found(name: str, version: str = "9.9", **more: object) -> InstalledRuntime:
    runtime = RUNTIMES[name]
    numbers = tuple(map(int, version.split(".")))
    filled = InstalledRuntime(
        runtime, Path("/usr/bin") / runtime.program, Version(numbers, version)
    )
    return replace(filled, **more)  # type: ignore[arg-type]


AVAILABLE = {
    "runc": (found("runc"), OLD, GOOD),
    "an old crun under an old containerd": (found("crun", "1.8.1"), OLD, GOOD),
    "a new crun under a new containerd": (found("crun", "1.14.2"), NEW, GOOD),
    "kata with KVM": (found("kata"), OLD, GOOD),
    "a kata variant with its configuration": (
        found("kata-qemu", configuration=Path("/etc/kata")),
        OLD,
        GOOD,
    ),
    "runsc with its shim": (
        found("runsc"),
        replace(OLD, shims={"containerd-shim-runsc-v1": Path("/usr/bin/x")}),
        GOOD,
    ),
    "runsc without any engine": (found("runsc"), None, GOOD),
}


@pytest.mark.parametrize(("one", "engine", "machine"), AVAILABLE.values(), ids=AVAILABLE)
def test_what_has_all_it_needs_is_available(
    one: InstalledRuntime, engine: Containerd | None, machine: Machine
) -> None:
    assert judge(one, engine, machine).is_available


UNAVAILABLE = {
    "not installed, packaged": (
        InstalledRuntime(RUNTIMES["crun"]),
        OLD,
        GOOD,
        "crun is not on PATH",
        "apt-get install crun",
    ),
    "not installed, not packaged": (
        InstalledRuntime(RUNTIMES["youki"]),
        OLD,
        GOOD,
        "youki is not on PATH",
        "install youki from https://github.com/youki-dev/youki/releases",
    ),
    "runsc without shim": (
        found("runsc"),
        OLD,
        GOOD,
        "runsc is installed, but containerd needs its shim containerd-shim-runsc-v1, "
        "which is not on PATH",
        "install containerd-shim-runsc-v1 from https://gvisor.dev/docs/user_guide/install/",
    ),
    "runc without its shim": (
        found("runc"),
        replace(OLD, shims={}),
        GOOD,
        "runc is installed, but containerd needs its shim containerd-shim-runc-v2, "
        "which is not on PATH",
        "install containerd-shim-runc-v2 from containerd's own package",
    ),
    "kata without KVM": (
        found("kata"),
        OLD,
        replace(GOOD, has_kvm=False),
        "kata needs hardware virtualization, and /dev/kvm cannot be opened",
        "run on a host with KVM, or turn on nested virtualization for this one",
    ),
    "an old crun under a new containerd": (
        found("crun", "1.8.1"),
        NEW,
        GOOD,
        "crun 1.8.1 refuses the OCI version that containerd 2.1.0 writes",
        "install crun 1.14.2 or later",
    ),
    "crun with hugetlb on version 2": (
        found("crun"),
        OLD,
        replace(GOOD, is_hugetlb_apart=True),
        "crun refuses cgroup version 1 while the hugetlb controller is on version 2",
        "mkdir -p /sys/fs/cgroup/hugetlb && "
        "mount -t cgroup -o hugetlb cgroup /sys/fs/cgroup/hugetlb",
    ),
    "a program that hangs": (
        found("runc", failure="no answer within 3 s"),
        OLD,
        GOOD,
        "/usr/bin/runc does not answer: no answer within 3 s",
        "run `/usr/bin/runc --version` by hand and correct what it reports",
    ),
}


@pytest.mark.parametrize(
    ("one", "engine", "machine", "reason", "remedy"), UNAVAILABLE.values(), ids=UNAVAILABLE
)
def test_what_lacks_something_says_what_and_what_to_do(
    one: InstalledRuntime, engine: Containerd, machine: Machine, reason: str, remedy: str
) -> None:
    verdict = judge(one, engine, machine)
    assert (verdict.reason, verdict.remedy) == (reason, remedy)


def test_a_kata_variant_without_its_configuration_is_not_another_hypervisor() -> None:
    verdict = judge(found("kata-fc"), OLD, GOOD)
    assert "configuration-fc.toml" in verdict.reason
    assert "/etc/kata-containers/configuration-fc.toml" in verdict.remedy


@pytest.mark.parametrize(
    ("shim_type", "program"),
    [
        ("io.containerd.runc.v2", "containerd-shim-runc-v2"),
        ("io.containerd.runsc.v1", "containerd-shim-runsc-v1"),
        ("io.containerd.kata.v2", "containerd-shim-kata-v2"),
    ],
)
def test_a_shim_is_called_after_its_runtime_type(shim_type: str, program: str) -> None:
    assert shim_program(shim_type) == program


def test_no_two_runtimes_share_a_handler_name() -> None:
    names = [name for runtime in KNOWN_RUNTIMES for name in runtime.handlers]
    assert len(set(names)) == len(names)


def test_programs_that_are_shims_are_called_like_their_type() -> None:
    for runtime in KNOWN_RUNTIMES:
        if runtime.is_shim:
            assert shim_program(runtime.shim_type) == runtime.program
