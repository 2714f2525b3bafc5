from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.engine.oci.capabilities import DEFAULT
from moorage.engine.oci.seccomp import SeccompProfiles, built_in_profile
from moorage.engine.oci.seccomp.profile import ALLOWED, ARCHITECTURES, BY_CAPABILITY, BY_MACHINE
from moorage.linux.capabilities import NAMES

KERNEL = (6, 1)


def allowed(
    capabilities: frozenset[str] = frozenset(), machine: str = "x86_64", kernel: Any = KERNEL
) -> set[str]:
    """The names that are allowed whatever their arguments."""
    rules = built_in_profile(capabilities, machine, kernel)["syscalls"]
    return {
        name
        for rule in rules
        if rule["action"] == "SCMP_ACT_ALLOW" and "args" not in rule
        for name in rule["names"]
    }


def rules(name: str, capabilities: frozenset[str] = frozenset(), machine: str = "x86_64") -> Any:
    syscalls = built_in_profile(capabilities, machine, KERNEL)["syscalls"]
    return [rule for rule in syscalls if name in rule["names"]]


@pytest.mark.parametrize(
    "name",
    [
        "acct", "add_key", "bpf", "clock_settime", "clone3", "create_module", "delete_module",
        "finit_module", "fsopen", "init_module", "io_uring_enter", "io_uring_register",
        "io_uring_setup", "ioperm", "iopl", "kcmp", "kexec_file_load", "kexec_load", "keyctl",
        "mbind", "mount", "move_mount", "nfsservctl", "open_by_handle_at", "open_tree",
        "perf_event_open", "pivot_root", "quotactl", "reboot", "request_key", "set_mempolicy",
        "setdomainname", "sethostname", "setns", "settimeofday", "swapoff", "swapon", "sysfs",
        "syslog", "umount2", "unshare", "uselib", "userfaultfd", "ustat", "vhangup", "vm86",
    ],
)  # fmt: skip
def test_what_reaches_beyond_a_container_is_refused(name: str) -> None:
    assert name not in allowed(DEFAULT)


@pytest.mark.parametrize(
    "name",
    [
        "accept4", "arch_prctl", "brk", "chown", "clock_gettime", "close_range", "copy_file_range",
        "epoll_pwait2", "execve", "faccessat2", "fchmodat2", "futex", "futex_waitv", "getrandom",
        "io_submit", "landlock_create_ruleset", "memfd_create", "mkdir", "mmap", "openat2",
        "pidfd_open", "pidfd_send_signal", "prctl", "ptrace", "read", "rseq", "seccomp",
        "sendmsg", "setuid", "statx", "timerfd_create", "vfork", "wait4",
    ],
)  # fmt: skip
def test_what_programs_need_is_allowed(name: str) -> None:
    assert name in allowed()


@pytest.mark.parametrize(
    ("capability", "name"),
    [(capability, name) for capability, names in BY_CAPABILITY.items() for name in names.split()],
)
def test_a_capability_adds_its_calls(capability: str, name: str) -> None:
    assert name in allowed(frozenset({capability}))


def test_new_namespaces_need_a_capability() -> None:
    (clone,) = rules("clone")
    assert clone["args"] == [
        {"index": 0, "value": 0x7E020000, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}
    ]
    assert rules("clone3") == [{"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38}]
    assert rules("clone", machine="s390x")[0]["args"][0]["index"] == 1
    admin = frozenset({"CAP_SYS_ADMIN"})
    assert all("args" not in rule for rule in rules("clone", admin))
    assert {"clone", "clone3"} <= allowed(admin)


def test_a_socket_to_the_hypervisor_is_refused() -> None:
    (socket,) = rules("socket")
    assert socket["args"] == [{"index": 0, "value": 40, "op": "SCMP_CMP_NE"}]


def test_only_harmless_personalities_are_taken_on() -> None:
    values = [rule["args"][0]["value"] for rule in rules("personality")]
    assert values == [0, 8, 0x20000, 0x20008, 0xFFFFFFFF]


def test_tracing_needs_a_kernel_whose_filter_it_cannot_slip() -> None:
    assert "ptrace" not in allowed(kernel=(4, 4))
    assert "ptrace" in allowed(frozenset({"CAP_SYS_PTRACE"}), kernel=(4, 4))


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_each_machine_has_its_architectures_and_calls(machine: str) -> None:
    profile = built_in_profile(frozenset(), machine, KERNEL)
    assert profile["architectures"] == list(ARCHITECTURES[machine])
    assert set(BY_MACHINE.get(machine, "").split()) <= allowed(machine=machine)


def test_everything_else_fails_as_not_permitted() -> None:
    profile = built_in_profile(frozenset(), "x86_64", KERNEL)
    assert (profile["defaultAction"], profile["defaultErrnoRet"]) == ("SCMP_ACT_ERRNO", 1)


def test_table_has_no_duplicate_names() -> None:
    names = [name for group in ALLOWED.values() for name in group.split()]
    assert len(names) == len(set(names))


def test_a_profile_is_made_once_for_what_makes_a_difference() -> None:
    profiles = SeccompProfiles("x86_64", KERNEL)
    assert profiles.built_in(DEFAULT) is profiles.built_in(DEFAULT - {"CAP_KILL"})
    assert profiles.built_in(DEFAULT) is not profiles.built_in(frozenset())


@given(st.frozensets(st.sampled_from(NAMES)), st.frozensets(st.sampled_from(NAMES)))
def test_more_capabilities_never_allow_less(fewer: frozenset[str], more: frozenset[str]) -> None:
    assert allowed(fewer) <= allowed(fewer | more)
    msgspec.json.encode(built_in_profile(fewer, "x86_64", KERNEL))
