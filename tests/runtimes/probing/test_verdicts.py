"""Verdicts on features, from outputs of probes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.runtime_group import SUPPORTED, UNKNOWN, UNSUPPORTED
from moorage.runtimeclass.features import CAPABILITIES, FEATURES, SYSTEM_CALLS
from moorage.runtimes.probing.carrier import Outcome, ProbeResult
from moorage.runtimes.probing.evidence import Evidence, stable_text
from moorage.runtimes.probing.host import HostFacts
from moorage.runtimes.probing.programs.capabilities import OPERATIONS
from moorage.runtimes.probing.programs.devices import BLOCK_DEVICES, CHARACTER_DEVICE, GPU_DEVICES
from moorage.runtimes.probing.programs.facts import CGROUP_LIMITS, RECURSIVE_MOUNT
from moorage.runtimes.probing.programs.nesting import STEPS
from moorage.runtimes.probing.programs.networks import ANSWER, ROUNDS
from moorage.runtimes.probing.programs.system_calls import CALLS
from moorage.runtimes.probing.suite import MEMORY_BYTES, PROBES
from moorage.runtimes.probing.verdicts import READINGS, findings, probes_of, profile_features

_HOST = HostFacts(
    kernel="6.1.0",
    boot_id="host",
    architecture="amd64",
    cpu_count=4,
    interfaces=("lo", "eth0"),
    first_process="systemd",
    ipc_namespace="ipc:[1]",
    security_modules=("apparmor",),
    devices=("/dev/zero",),
    shares_mounts=True,
)
_PLAIN = (
    "== /proc/version\nLinux version 6.1.0\n== /proc/sys/kernel/random/boot_id\nhost\n"
    "== /proc/self/status\nCapEff:\t00000000a80425fb\n== /proc/net/dev\n lo: 1\n eth0: 2\n"
    "== results\nkeyctl 0000000000000001\ngetpid 0000000000000001\n"
)


def _ended(output: str, exit_code: int = 0, reason: str = "") -> ProbeResult:
    return ProbeResult(outcome=Outcome.ENDED, exit_code=exit_code, output=output, reason=reason)


def _results(**values: int) -> ProbeResult:
    lines = [f"{name} {value & 0xFFFFFFFFFFFFFFFF:016x}" for name, value in values.items()]
    return _ended("\n".join(["== results", *lines]))


def _state(feature: str, results: dict[str, ProbeResult]) -> tuple[str, str]:
    named = {name.replace("__", "/").replace("_", "-"): one for name, one in results.items()}
    evidence = Evidence(_HOST, {"plain": _ended(_PLAIN), **named})
    finding = findings(evidence)[feature]
    return finding.state, finding.message


def test_every_feature_of_the_vocabulary_has_a_reading_of_probes_that_exist() -> None:
    assert READINGS.keys() == FEATURES.keys()
    for reading in READINGS.values():
        assert {probe.partition("/")[0] for probe in reading.probes} <= PROBES.keys()
    assert CALLS.keys() == set(SYSTEM_CALLS)
    assert OPERATIONS.keys() <= set(CAPABILITIES)


_REFUSED = ProbeResult(outcome=Outcome.REFUSED, error="no such thing")
_CUT_OFF = ProbeResult(outcome=Outcome.CUT_OFF, error="it did not end within 20 s")
_CANNOT = ProbeResult(outcome=Outcome.UNSUPPORTED, error="a pod cannot limit its processes")


@pytest.mark.parametrize(
    ("feature", "results", "state", "message"),
    [
        ("syscall-statx", {"system_calls": _results(statx=-22)}, UNSUPPORTED, "EINVAL"),
        ("syscall-statx", {"system_calls": _results(statx=0)}, SUPPORTED, "succeeds"),
        ("syscall-futex-waitv", {"system_calls": _results(futex_waitv=-11)}, SUPPORTED, ""),
        ("syscall-bpf", {"system_calls": _results(**{"bpf": 0, "bpf.end": 31})}, UNSUPPORTED,
         "signal 31"),
        ("syscall-bpf", {"system_calls": _ended("", 1)}, UNSUPPORTED, "status 1"),
        ("blocking-reads", {"networks": _results(**{"accept-0": 3, "read-0": -11})}, UNSUPPORTED,
         "EAGAIN"),
        ("raw-sockets", {"networks": _results(raw=-97)}, UNSUPPORTED, "EAFNOSUPPORT"),
        ("seccomp", {"seccomp": _results(keyctl=-1)}, SUPPORTED, "keyctl"),
        ("seccomp", {"seccomp": _results(keyctl=1)}, UNSUPPORTED, "no call is denied"),
        ("memory-limit", {"memory": _ended("", 137, "OOMKilled")}, SUPPORTED, "OOMKilled"),
        ("memory-limit", {"memory": _results(taken=1 << 40)}, UNSUPPORTED, "went on"),
        ("memory-limit", {"memory": _results(taken=-12)}, SUPPORTED, "ENOMEM"),
        ("pids-limit", {"processes": _ended("", 137)}, SUPPORTED, "137"),
        ("pids-limit", {"processes": _results(**{"doubling-0": 5, "doubling-7": -11})}, SUPPORTED,
         "EAGAIN"),
        ("pids-limit", {"processes": _results(**{"doubling-7": 9})}, UNSUPPORTED, "more"),
        ("cpu-limit", {"cpu_small": _results(work=10), "cpu_large": _results(work=100)},
         SUPPORTED, ""),
        ("cpu-limit", {"cpu_small": _results(work=99), "cpu_large": _results(work=100)},
         UNSUPPORTED, ""),
        ("cpu-limit", {"cpu_small": _results(work=70), "cpu_large": _results(work=100)},
         UNKNOWN, "busy"),
        ("cpu-limit-visible", {"limited": _results(**{"affinity-bytes": 8, "affinity-0": 1})},
         SUPPORTED, "1 processors"),
        ("cpu-limit-visible", {"limited": _results(**{"affinity-bytes": 8, "affinity-0": 15})},
         UNSUPPORTED, "4 processors"),
        ("memory-limit-visible",
         {"limited": _results(**{"sysinfo": 0, "total-memory": MEMORY_BYTES, "memory-unit": 1})},
         SUPPORTED, ""),
        ("terminal", {"terminal": _results(terminal=-25)}, UNSUPPORTED, "ENOTTY"),
        ("host-pid", {"host_pid": _ended("== /proc/1/comm\nsystemd\n== results\ngetpid 0a\n")},
         SUPPORTED, "systemd"),
        ("host-pid", {"host_pid": _ended("== /proc/1/comm\nfacts\n== results\ngetpid 01\n")},
         UNSUPPORTED, "facts"),
        ("host-ipc", {"host_ipc": _ended("== /proc/self/ns/ipc\nipc:[1]\n")}, SUPPORTED, ""),
        ("host-ipc", {"host_ipc": _ended("== /proc/self/ns/ipc\nipc:[2]\n")}, UNSUPPORTED, ""),
        ("host-network", {"host_network": _ended("== /proc/net/dev\n lo: 1\n eth0: 1\n")},
         SUPPORTED, "eth0"),
        ("user-namespaces", {"user_namespace": _ended("== /proc/self/uid_map\n 0 65536 65536\n")},
         SUPPORTED, "mapped"),
        ("user-namespaces", {"user_namespace": _REFUSED}, UNSUPPORTED, "no such thing"),
        ("recursive-read-only-mounts",
         {"recursive_mount": _results(**{"submount": 0, "submount-flags": 0})}, UNSUPPORTED,
         "writable"),
        ("recursive-read-only-mounts",
         {"recursive_mount": _results(**{"submount": 0, "submount-flags": 33})}, SUPPORTED,
         "read-only"),
        ("capability-chown",
         {"capabilities": _ended("== /proc/self/status\nCapEff: 1\n== results\nCHOWN 00\n")},
         SUPPORTED, "permitted"),
        ("capability-kill",
         {"capabilities": _ended("== /proc/self/status\nCapEff: 1\n== results\nKILL 00\n")},
         UNSUPPORTED, "effective set"),
        ("exec", {"kept": _ended(""), "kept__exec": _results(getpid=7)}, SUPPORTED, ""),
        ("exec", {"kept": _REFUSED}, UNSUPPORTED, "refused"),
        ("port-forward", {"kept": _ended(""), "kept__fetch": _ended("moorage\n")}, SUPPORTED, ""),
        ("terminal", {"terminal": _CUT_OFF}, UNKNOWN, "cut off"),
        ("pids-limit", {"processes": _CANNOT}, UNKNOWN, "cannot limit"),
        ("terminal", {}, UNKNOWN, "not run"),
        ("gpu", {}, UNSUPPORTED, "no GPU"),
        ("selinux", {}, UNSUPPORTED, "no SELinux"),
    ],
)  # fmt: skip
def test_findings(feature: str, results: dict[str, ProbeResult], state: str, message: str) -> None:
    found = _state(feature, results)
    assert found[0] == state, found
    assert message in found[1]


_CAPABILITY_ORDER = (
    "CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID",
    "SETPCAP", "LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW",
    "IPC_LOCK", "IPC_OWNER", "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT",
    "SYS_ADMIN", "SYS_BOOT", "SYS_NICE", "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD",
    "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP", "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG",
    "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF", "CHECKPOINT_RESTORE",
)  # fmt: skip
_FIRST_BOOT = "== /proc/version\nLinux version 6.1.0\n== /proc/sys/kernel/random/boot_id\n"
_OF_A_VM = (
    f"{_FIRST_BOOT}guest\n== /proc/cpuinfo\nflags\t: fpu hypervisor\n"
    "== /proc/self/status\nCapEff:\t00000000a80425fb\n"
)
_OF_GVISOR = "== /proc/version\nLinux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016\n"
_STATUS = "== /proc/self/status\nCapEff:\t"
_ALL_CAPABILITIES = f"{_STATUS}000001ffffffffff\n"
_MOUNTS = "== /proc/self/mountinfo\n1 0 0:1 / / rw - ext4 a rw\n"


def _verdict(
    feature: str, results: dict[str, ProbeResult], plain: str = _PLAIN, **host: Any
) -> tuple[str, str]:
    facts = msgspec.structs.replace(_HOST, **host)
    evidence = Evidence(facts, {"plain": _ended(plain), **results})
    finding = findings(evidence)[feature]
    return finding.state, finding.message


@pytest.mark.parametrize(
    ("feature", "probe", "output", "state", "message"),
    [
        ("host-network", "host-network", "== /proc/net/dev\n eth0: 1\n lo: 2\n veth1: 2\n",
         SUPPORTED, "interfaces seen: eth0, lo, veth1"),
        ("host-network", "host-network", "== /proc/net/dev\n head | er\n lo: 2\n",
         UNSUPPORTED, "interfaces seen: lo"),
        ("host-network", "host-network", "", UNSUPPORTED,
         "the program ended with status 0 before it printed a result"),
        ("host-pid", "host-pid", "== results\ngetpid 0a\n", UNSUPPORTED,
         "process 1 is not visible"),
        ("host-pid", "host-pid", "== /proc/1/comm\nsystemd\n== results\ngetpid 01\n",
         UNSUPPORTED, "process 1 is systemd"),
        ("host-pid", "host-pid", "", UNSUPPORTED,
         "the program ended with status 0 before it printed a result"),
        ("host-ipc", "host-ipc", "", UNKNOWN, "the IPC namespace is not visible inside"),
        ("host-ipc", "host-ipc", "== /proc/self/ns/ipc\nipc:[1]\n", SUPPORTED,
         "the IPC namespace is the node's"),
        ("host-ipc", "host-ipc", "== /proc/self/ns/ipc\nipc:[2]\n", UNSUPPORTED,
         "the IPC namespace is not the node's"),
        ("shared-process-namespace", "shared-processes", "== results\ngetpid 07\n", SUPPORTED,
         "the container shares a process table: its process is not number 1"),
        ("shared-process-namespace", "shared-processes", "== results\ngetpid 01\n", UNSUPPORTED,
         "the container has a process table of its own: its process is number 1"),
        ("shared-process-namespace", "shared-processes", "", UNSUPPORTED,
         "the program ended with status 0 before it printed a result"),
        ("user-namespaces", "user-namespace", "== /proc/self/uid_map\n  0  0  4294967295\n",
         UNSUPPORTED, "user ids are the node's: 0 0 4294967295"),
        ("user-namespaces", "user-namespace", "== /proc/self/uid_map\n 0 65536 65536\n",
         SUPPORTED, "user ids are mapped to others of the node"),
        ("user-namespaces", "user-namespace", "", UNSUPPORTED,
         "the program ended with status 0 before it printed a result"),
        ("privileged", "privileged",
         f"{_ALL_CAPABILITIES}== results\ndevice /dev/kmsg 00\ngetpid 01\n", SUPPORTED,
         "it has all capabilities and /dev/kmsg"),
        ("privileged", "privileged", f"{_ALL_CAPABILITIES}== results\ngetpid 01\n", UNSUPPORTED,
         "it has all capabilities, but none of the node's devices"),
        ("privileged", "privileged", f"{_STATUS}a80425fb\n== results\ngetpid 01\n", UNSUPPORTED,
         "it has no more capabilities than another container"),
        ("privileged", "privileged", "== results\ngetpid 01\n", UNSUPPORTED,
         "it has no more capabilities than another container"),
        ("privileged", "privileged", _ALL_CAPABILITIES, UNSUPPORTED,
         "the program ended with status 0 before it printed a result"),
        ("seccomp", "seccomp", "== results\nkeyctl ffffffffffffffff\n", SUPPORTED,
         "RuntimeDefault denies keyctl, which is allowed without it"),
        ("seccomp", "seccomp", "== results\nadd-key ffffffffffffffff\n", SUPPORTED,
         "RuntimeDefault denies add-key, which is allowed without it"),
        ("seccomp", "seccomp",
         "== /proc/self/status\nSeccomp:\t2\n== results\nkeyctl ffffffffffffffea\n", UNSUPPORTED,
         "under RuntimeDefault no call is denied that is allowed without it (mode 2)"),
        ("seccomp", "seccomp", "== results\ngetpid 01\n", UNSUPPORTED,
         "under RuntimeDefault no call is denied that is allowed without it (mode ?)"),
        ("seccomp", "seccomp", "", UNSUPPORTED,
         "the program ended with status 0 before it printed a result"),
        ("apparmor", "apparmor", "== /proc/self/attr/current\ncri-default (enforce)\n", SUPPORTED,
         "its profile is cri-default (enforce)"),
        ("apparmor", "apparmor", "== /proc/self/attr/current\nunconfined\n", UNSUPPORTED,
         "its profile is unconfined"),
        ("apparmor", "apparmor", "", UNSUPPORTED, "its profile is not visible"),
        ("no-new-privileges", "restricted", "== results\nno-new-privileges 01\n", SUPPORTED,
         "prctl says that it is set"),
        ("no-new-privileges", "restricted", "== results\nno-new-privileges 00\n", UNSUPPORTED,
         "prctl says that it is not set"),
        ("no-new-privileges", "restricted", "== results\ngetpid 01\n", UNSUPPORTED,
         "prctl says that it is not set"),
        ("no-new-privileges", "restricted", "", UNSUPPORTED,
         "the program ended with status 0 before it printed a result"),
        ("read-only-root", "restricted", "== results\nwrite-to-root ffffffffffffffe2\n", SUPPORTED,
         "a file in / is created: EROFS"),
        ("read-only-root", "restricted", "== results\nwrite-to-root 03\n", UNSUPPORTED,
         "a file in / is created: succeeds"),
        ("read-only-root", "restricted", "== results\nwrite-to-root fffffffffffffff3\n",
         UNSUPPORTED, "a file in / is created: EACCES"),
        ("read-only-root", "restricted", "== results\ngetpid 01\n", UNSUPPORTED,
         "a file in / is created: succeeds"),
        ("read-only-root", "restricted", "", UNSUPPORTED,
         "the program ended with status 0 before it printed a result"),
        ("nested-containers", "nesting", "", UNSUPPORTED,
         "the program ended with status 0 before it printed a result"),
        ("nested-containers", "nesting",
         "== results\n" + "".join(f"{step} 00\n" for step in STEPS), SUPPORTED,
         "privileged, namespaces, mounts and pivot_root succeed"),
        ("nested-containers", "nesting", f"== results\n{STEPS[0]} 00\n", UNSUPPORTED,
         f"step {STEPS[1]}, privileged: EPERM"),
        ("nested-containers", "nesting", f"== results\n{STEPS[0]} ffffffffffffffea\n",
         UNSUPPORTED, f"step {STEPS[0]}, privileged: EINVAL"),
        ("recursive-read-only-mounts", "recursive-mount", "== results\nsubmount 00\n",
         UNSUPPORTED, "a mount below a recursively read-only volume is writable"),
        ("recursive-read-only-mounts", "recursive-mount",
         "== results\nsubmount 00\nsubmount-flags 21\n",
         SUPPORTED, "a mount below a recursively read-only volume is read-only"),
        ("recursive-read-only-mounts", "recursive-mount",
         "== results\nsubmount 00\nsubmount-flags 02\n",
         UNSUPPORTED, "a mount below a recursively read-only volume is writable"),
        ("recursive-read-only-mounts", "recursive-mount", "== results\nsubmount-flags 01\n",
         UNKNOWN, "the node has no mount below /dev to try it with"),
        ("recursive-read-only-mounts", "recursive-mount", "", UNSUPPORTED,
         "the program ended with status 0 before it printed a result"),
        ("mount-propagation", "propagation",
         f"{_MOUNTS}2 1 0:5 / {RECURSIVE_MOUNT} ro master:3 - devtmpfs a rw\n", SUPPORTED,
         "the mount of the volume receives mounts of the node"),
        ("mount-propagation", "propagation",
         f"{_MOUNTS}2 1 0:5 / {RECURSIVE_MOUNT} ro - devtmpfs a rw\n", UNSUPPORTED,
         "the mount of the volume does not receive mounts of the node"),
        ("mount-propagation", "propagation",
         f"{_MOUNTS}2 1 0:5 / {RECURSIVE_MOUNT} master:3\n3 1 0:5 / /b ro master:3 - x a rw\n",
         UNSUPPORTED, "the volume is not among the mounts that the container sees"),
        ("devices", "device", f"== results\n{CHARACTER_DEVICE} 03\nread 01\n", SUPPORTED,
         f"{CHARACTER_DEVICE} is opened and read"),
        ("devices", "device", f"== results\n{CHARACTER_DEVICE} 00\nread 00\n", UNSUPPORTED,
         f"{CHARACTER_DEVICE} is opened and read"),
        ("devices", "device", f"== results\n{CHARACTER_DEVICE} 03\n", UNSUPPORTED,
         f"{CHARACTER_DEVICE} is opened and read"),
        ("devices", "device", "== results\nread 01\n", UNSUPPORTED,
         f"{CHARACTER_DEVICE} is opened: EPERM"),
        ("devices", "device", "", UNSUPPORTED,
         "the program ended with status 0 before it printed a result"),
        ("raw-sockets", "networks", "== results\nraw 00\n", SUPPORTED,
         "a raw socket is made: succeeds"),
        ("packet-sockets", "networks", "== results\npacket ffffffffffffffff\n", UNSUPPORTED,
         "a packet socket is made: EPERM"),
        ("ipv6", "networks", "== results\nipv6-bind 00\n", SUPPORTED, "::1 is bound to: succeeds"),
        ("ipv6", "networks", "== results\nraw 00\n", UNSUPPORTED, "::1 is bound to: EPERM"),
        ("ipv6", "networks", "", UNSUPPORTED,
         "the program ended with status 0 before it printed a result"),
        ("blocking-reads", "networks", "", UNSUPPORTED,
         "the program ended with status 0 before it printed a result"),
        ("blocking-reads", "networks",
         "== results\n" + "".join(
             f"accept-{number} 00\nread-{number} {len(ANSWER):x}\n" for number in range(ROUNDS)
         ),
         SUPPORTED, "a read from a socket waits for its data"),
        ("blocking-reads", "networks", "== results\naccept-0 03\nread-0.end 0b\n", UNSUPPORTED,
         "a read from a socket was ended by signal 11"),
        ("blocking-reads", "networks", f"== results\nread-0 {len(ANSWER):x}\n", UNSUPPORTED,
         "a connection is accepted: EPERM"),
        ("blocking-reads", "networks",
         f"== results\naccept-0 03\nread-0 {len(ANSWER):x}\naccept-1 03\n", UNSUPPORTED,
         "a read before the data arrives: EPERM"),
        ("pids-limit", "processes", "", SUPPORTED,
         "it made more processes than its limit, and the program ended with status 0"),
        ("pids-limit", "processes", "== results\ndoubling-0 00\n", UNSUPPORTED,
         "it made more processes than its limit"),
        ("pids-limit", "processes", "== results\ndoubling-0 fffffffffffffff5\n", SUPPORTED,
         "more processes than the limit: EAGAIN"),
        ("memory-limit", "memory", "== results\ntaken 00\n", SUPPORTED,
         "more memory than the limit is taken: succeeds"),
        ("memory-limit", "memory", "== results\ntaken 01\n", UNSUPPORTED,
         "it took twice its memory limit and went on"),
        ("memory-limit-visible", "limited", "== results\nsysinfo 00\ntotal-memory 00\n",
         UNSUPPORTED, "it sees another size than its limit as the size of memory"),
        ("memory-limit-visible", "limited",
         f"== results\nsysinfo 00\ntotal-memory {MEMORY_BYTES // 4096:x}\n"
         "memory-unit ff00001000\n",
         SUPPORTED, "it sees its limit as the size of memory"),
        ("memory-limit-visible", "limited",
         f"== results\nsysinfo 00\ntotal-memory {MEMORY_BYTES * 11 // 10:x}\nmemory-unit 00\n",
         SUPPORTED, "it sees its limit as the size of memory"),
        ("memory-limit-visible", "limited",
         f"== results\nsysinfo 00\ntotal-memory {MEMORY_BYTES * 11 // 10 + 1:x}\n",
         UNSUPPORTED, "it sees another size than its limit as the size of memory"),
        ("memory-limit-visible", "limited", f"== results\ntotal-memory {MEMORY_BYTES:x}\n",
         UNSUPPORTED, "the program ended with status 0 before it printed a result"),
        ("cpu-limit-visible", "limited", "== results\naffinity-bytes 07\naffinity-0 01\n",
         UNSUPPORTED, "the program ended with status 0 before it printed a result"),
        ("cpu-limit-visible", "limited",
         "== results\naffinity-bytes 10\naffinity-0 ffffffffffffffff\naffinity-1 01\n",
         UNSUPPORTED, "with a limit of 1 CPU it sees 65 processors"),
        ("cpu-limit-visible", "limited",
         "== results\naffinity-bytes 28\naffinity-0 01\naffinity-4 01\n",
         SUPPORTED, "with a limit of 1 CPU it sees 1 processors"),
        ("cgroup-visible", "limited", f"== {CGROUP_LIMITS[1]}\n{MEMORY_BYTES}\n", SUPPORTED,
         f"{CGROUP_LIMITS[1]} is its memory limit"),
        ("cgroup-visible", "limited", f"== {CGROUP_LIMITS[0]}\nmax\n", UNSUPPORTED,
         "its memory limit is in no file of /sys/fs/cgroup"),
        ("terminal", "terminal", "== results\nterminal 00\n", SUPPORTED,
         "settings of the terminal are read: succeeds"),
        ("terminal", "terminal", "== results\ngetpid 01\n", UNSUPPORTED,
         "settings of the terminal are read: EPERM"),
        ("terminal", "terminal", "", UNSUPPORTED,
         "the program ended with status 0 before it printed a result"),
        ("syscall-statx", "system-calls", "== results\nstatx ffffffffffffffda\n", UNSUPPORTED,
         "statx with AT_NO_AUTOMOUNT, as `ls` and `stat` of coreutils 9 call it: ENOSYS"),
        ("syscall-futex-waitv", "system-calls", "== results\nfutex_waitv fffffffffffffff5\n",
         SUPPORTED, "futex_waitv on a value that has changed: succeeds"),
        ("syscall-clone3", "system-calls", "== results\nclone3 0a\n", SUPPORTED,
         "clone3 without flags: succeeds"),
        ("syscall-bpf", "system-calls", "== results\nbpf fffffffffffffff5\n", UNSUPPORTED,
         "bpf: EAGAIN"),
        ("capability-chown", "capabilities", "", UNSUPPORTED,
         "the program ended with status 0 before it printed a result"),
        ("capability-chown", "capabilities", f"{_ALL_CAPABILITIES}== results\ngetpid 01\n",
         UNSUPPORTED, "what it permits was tried: EPERM"),
        ("capability-sys-boot", "capabilities",
         f"{_ALL_CAPABILITIES}== results\nSYS_BOOT ffffffffffffffea\n", SUPPORTED,
         "what it permits was tried: permitted"),
        ("capability-sys-module", "capabilities",
         f"{_ALL_CAPABILITIES}== results\nSYS_MODULE ffffffffffffffda\n", UNKNOWN,
         "the node's kernel lacks the function that it permits"),
    ],
)  # fmt: skip
def test_findings_in_full(feature: str, probe: str, output: str, state: str, message: str) -> None:
    assert _verdict(feature, {probe: _ended(output)}) == (state, message)


@pytest.mark.parametrize("number", range(len(_CAPABILITY_ORDER)))
def test_a_capability_is_read_from_its_own_bit(number: int) -> None:
    """The order is the kernel's: include/uapi/linux/capability.h."""
    name = _CAPABILITY_ORDER[number]
    feature = "capability-" + name.lower().replace("_", "-")
    alone, others = 1 << number, ((1 << 41) - 1) ^ (1 << number)
    for mask, has_it in ((alone, True), (others, False)):
        output = f"{_STATUS}{mask:016x}\n== results\n{name} 00\n"
        state, message = _verdict(feature, {"capabilities": _ended(output)})
        assert ("not in the effective set" not in message) is has_it
        assert state == (SUPPORTED if has_it else UNSUPPORTED)


@pytest.mark.parametrize(
    ("feature", "probe", "output", "plain", "state", "message"),
    [
        ("host-pid", "host-pid", "== /proc/1/comm\nsystemd\n== results\ngetpid 0a\n", _OF_A_VM,
         UNSUPPORTED, "containers have a kernel of their own: its process table is the sandbox's"),
        ("host-ipc", "host-ipc", "== /proc/self/ns/ipc\nipc:[1]\n", _OF_GVISOR,
         UNSUPPORTED, "containers have a kernel of their own: its System V IPC is the sandbox's"),
        ("privileged", "privileged", f"{_ALL_CAPABILITIES}== results\ngetpid 01\n", _OF_A_VM,
         UNSUPPORTED, "its capabilities and devices are the sandbox's, not the node's"),
        ("capability-sys-module", "capabilities",
         f"{_ALL_CAPABILITIES}== results\nSYS_MODULE ffffffffffffffda\n", _OF_A_VM,
         UNSUPPORTED, "what it permits was tried: ENOSYS"),
        ("capability-mac-admin", "capabilities", _ALL_CAPABILITIES, _OF_GVISOR, UNKNOWN,
         "it is in the effective set; what it permits cannot be tried harmlessly"),
        ("capability-mac-admin", "capabilities", _ALL_CAPABILITIES, "", UNKNOWN,
         "it is in the effective set; what it permits cannot be tried harmlessly"),
        ("capability-mac-admin", "capabilities", _ALL_CAPABILITIES, _OF_A_VM, SUPPORTED,
         "it is in the effective set, and the kernel is Linux"),
        ("no-network", "plain", "", "== /proc/net/dev\n lo: 1\n", SUPPORTED,
         "interfaces in a pod's network: lo"),
        ("no-network", "plain", "", "", SUPPORTED, "interfaces in a pod's network: none"),
        ("no-network", "plain", "", "== /proc/net/dev\n lo: 1\n eth0: 1\n", UNSUPPORTED,
         "interfaces in a pod's network: eth0, lo"),
    ],
)  # fmt: skip
def test_findings_depend_on_whose_kernel_it_is(
    feature: str, probe: str, output: str, plain: str, state: str, message: str
) -> None:
    results = {} if probe == "plain" else {probe: _ended(output)}
    assert _verdict(feature, results, plain) == (state, message)


def _open_devices(*paths: str) -> str:
    return "== results\n" + "".join(f"{path} 03\n" for path in paths)


@pytest.mark.parametrize(
    ("feature", "probe", "output", "host", "state", "message"),
    [
        ("host-network", "host-network", "== /proc/net/dev\n lo: 1\n x0: 1\n",
         {"interfaces": ()}, SUPPORTED, "interfaces seen: lo, x0"),
        ("host-network", "host-network", "== /proc/net/dev\n lo: 1\n eth0: 1\n",
         {"interfaces": ()}, UNSUPPORTED, "interfaces seen: eth0, lo"),
        ("host-network", "host-network", "== /proc/net/dev\n lo: 1\n",
         {"interfaces": ("lo", "veth1", "cali2", "lxc3", "moor4")}, SUPPORTED,
         "interfaces seen: lo"),
        ("host-network", "host-network",
         "== /proc/net/dev\n" + "".join(f" e{number}: 1\n" for number in range(10)),
         {"interfaces": ("e9",)}, SUPPORTED, "interfaces seen: e0, e1, e2, e3, e4, e5, e6, e7"),
        ("host-pid", "host-pid", "== /proc/1/comm\ninit\n== results\ngetpid 0a\n",
         {"first_process": ""}, SUPPORTED, "process 1 is init"),
        ("host-pid", "host-pid", "== /proc/1/comm\ninit\n== results\ngetpid 0a\n",
         {}, UNSUPPORTED, "process 1 is init"),
        ("host-ipc", "host-ipc", "== /proc/self/ns/ipc\nipc:[3]\n", {"ipc_namespace": ""},
         SUPPORTED, "the IPC namespace is the node's"),
        ("selinux", "selinux", "== /proc/self/attr/current\nsystem_u:r:t:s0:c1,c2\0\n",
         {"security_modules": ("selinux",)}, SUPPORTED, "its label is system_u:r:t:s0:c1,c2"),
        ("selinux", "selinux", "== /proc/self/attr/current\nsystem_u:r:t:s0\n",
         {"security_modules": None}, UNSUPPORTED, "its label is system_u:r:t:s0"),
        ("selinux", "selinux", "", {"security_modules": ("selinux",)}, UNSUPPORTED,
         "its label is not visible"),
        ("apparmor", "apparmor", "", {"security_modules": ()}, UNSUPPORTED,
         "the node's kernel has no AppArmor"),
        ("selinux", "selinux", "", {}, UNSUPPORTED, "the node's kernel has no SELinux"),
        ("mount-propagation", "propagation", "", {"shares_mounts": False}, UNKNOWN,
         "mounts of the node's /dev do not propagate, so it cannot be tried"),
        ("mount-propagation", "propagation", "", {"shares_mounts": None}, UNSUPPORTED,
         "the volume is not among the mounts that the container sees"),
        ("devices", "device", "", {"devices": None}, UNKNOWN,
         "the node's devices are not known from here"),
        ("devices", "device", "", {"devices": ()}, UNSUPPORTED,
         f"the node has no {CHARACTER_DEVICE}"),
        ("gpu", "gpu", "", {"devices": ()}, UNSUPPORTED, "the node has no GPU"),
        ("block-volumes", "block-device", "", {"devices": ()}, UNSUPPORTED,
         "the node has no block device"),
        ("gpu", "gpu", _open_devices(GPU_DEVICES[-1]), {"devices": (GPU_DEVICES[-1],)}, SUPPORTED,
         f"{GPU_DEVICES[-1]} is opened: succeeds"),
        ("block-volumes", "block-device", f"== results\n{BLOCK_DEVICES[1]} 00\n",
         {"devices": BLOCK_DEVICES[1:]}, SUPPORTED, f"{BLOCK_DEVICES[1]} is opened: succeeds"),
        ("block-volumes", "block-device", "", {"devices": BLOCK_DEVICES}, UNSUPPORTED,
         f"{BLOCK_DEVICES[0]} is opened: EPERM"),
        ("cpu-limit-visible", "limited", "== results\naffinity-bytes 08\naffinity-0 01\n",
         {"cpu_count": 1}, UNKNOWN, "the node has no more processors than the probe's limit"),
    ],
)  # fmt: skip
def test_findings_depend_on_the_node(
    feature: str, probe: str, output: str, host: dict[str, Any], state: str, message: str
) -> None:
    assert _verdict(feature, {probe: _ended(output)}, **host) == (state, message)


_BUSY = "the node is too busy to say what the CPU limit changes"


@pytest.mark.parametrize(
    ("small", "large", "state", "message"),
    [
        (0, 100, SUPPORTED, "with a tenth of the CPU much less work is done"),
        (60, 100, UNKNOWN, _BUSY),
        (90, 100, UNKNOWN, _BUSY),
        (91, 100, UNSUPPORTED, "with a tenth of the CPU the same work is done"),
        (0, 1, SUPPORTED, "with a tenth of the CPU much less work is done"),
        (1, 0, UNKNOWN, "the programs did not report their work"),
        (-1, 100, UNKNOWN, "the programs did not report their work"),
    ],
)
def test_the_cpu_limit_is_judged_by_the_share_of_work(
    small: int, large: int, state: str, message: str
) -> None:
    results = {"cpu-small": _results(work=small), "cpu-large": _results(work=large)}
    evidence = Evidence(_HOST, {"plain": _ended(_PLAIN), **results})
    finding = findings(evidence)["cpu-limit"]
    assert (finding.state, finding.message) == (state, message)
    # A busy node is asked again; what was found stays.
    assert finding.is_passing is (state == UNKNOWN)


@pytest.mark.parametrize(
    ("feature", "step", "result", "state", "message"),
    [
        ("exec", "exec", _ended("== results\ngetpid 01\n"), SUPPORTED,
         "a command in a running container printed its output"),
        ("exec", "exec", _ended("== results\ngetpid 01\n", 3), UNSUPPORTED,
         "a command in a running container: the program ended with status 3"),
        ("exec", "exec", _ended("", 0, "Completed"), UNSUPPORTED,
         "a command in a running container: the program ended with status 0"),
        ("live-resize", "resize", _ended(""), SUPPORTED,
         "other limits were taken while it ran"),
        ("live-resize", "resize", _ended("", 1, "Error"), UNSUPPORTED,
         "other limits were taken: the program ended with status 1"),
        ("live-resize", "resize", _REFUSED, UNSUPPORTED, "refused: no such thing"),
        ("port-forward", "fetch", _ended("moorage\n", 0), SUPPORTED, "a forwarded port answered"),
        ("port-forward", "fetch",
         ProbeResult(outcome=Outcome.ENDED, exit_code=1, error="no route"), UNSUPPORTED,
         "a forwarded port did not answer: no route"),
        ("port-forward", "fetch", _ended("moor", 0), UNSUPPORTED,
         "a forwarded port did not answer: no data"),
        ("checkpoint", "checkpoint", _ended(""), SUPPORTED, "a checkpoint was written"),
        ("checkpoint", "checkpoint", _ended("", 2, "Evil"), UNSUPPORTED,
         "the program ended with status 2 (Evil)"),
        ("checkpoint", "checkpoint", ProbeResult(outcome=Outcome.UNSUPPORTED), UNKNOWN,
         "it cannot be tried from here"),
        ("checkpoint", "checkpoint", _CUT_OFF, UNKNOWN,
         "the probe kept/checkpoint was cut off: it did not end within 20 s"),
    ],
)  # fmt: skip
def test_steps_of_a_kept_container(
    feature: str, step: str, result: ProbeResult, state: str, message: str
) -> None:
    results = {"kept": _ended(""), f"kept/{step}": result}
    assert _verdict(feature, results) == (state, message)


def test_a_probe_that_was_not_run_or_was_cut_off_is_run_again() -> None:
    """A refusal is the handler's own, and what a carrier cannot express stays so."""
    results = {"terminal": _CUT_OFF, "memory": _REFUSED, "processes": _CANNOT}
    found = findings(Evidence(_HOST, {"plain": _ended(_PLAIN), **results}))
    passing = {name for name in ("terminal", "memory-limit", "pids-limit", "devices")
               if found[name].is_passing}  # fmt: skip
    assert passing == {"terminal", "devices"}
    assert found["devices"].message == "the probe device was not run"


def test_the_probes_of_features_are_those_that_they_are_read_from() -> None:
    assert probes_of(["exec", "no-network"]) == {"kept", "plain"}
    assert probes_of([]) == frozenset()


def test_without_programs_for_the_architecture_everything_is_unknown() -> None:
    host = HostFacts(kernel="6.1.0", boot_id="host", architecture="s390x")
    found = findings(Evidence(host, {}))
    assert {finding.state for finding in found.values()} == {UNKNOWN}
    assert "s390x" in found["exec"].message


_OUTCOMES = st.builds(
    ProbeResult,
    outcome=st.sampled_from(Outcome),
    exit_code=st.integers(0, 255),
    output=st.text() | st.just(_PLAIN),
    error=st.text(),
    reason=st.sampled_from(["", "OOMKilled", "Error"]),
)
_PROBE_NAMES = sorted({probe for reading in READINGS.values() for probe in reading.probes})


@given(st.dictionaries(st.sampled_from(_PROBE_NAMES), _OUTCOMES))
def test_whatever_probes_print_there_is_one_finding_with_one_line_for_each_feature(
    results: dict[str, ProbeResult],
) -> None:
    evidence = Evidence(_HOST, results)
    features = profile_features(findings(evidence))
    assert [feature.name for feature in features] == list(FEATURES)
    for feature in features:
        assert feature.state in (SUPPORTED, UNSUPPORTED, UNKNOWN)
        assert feature.message
        assert len(feature.message) <= 1024
        assert len(feature.message.splitlines()) == 1


@given(st.text(max_size=2000))
def test_texts_of_engines_become_one_short_line(text: str) -> None:
    assert len(stable_text(text).splitlines()) <= 1
    assert len(stable_text(text)) <= 400


def test_ids_and_names_of_probes_are_left_out_of_findings() -> None:
    once = "sandbox 5f2a9c00d1e2 of probe-crun-0a1b2c3d failed, pid 77"
    again = "sandbox 9f2a9c00d1e2 of probe-crun-ffffffff failed, pid 78"
    assert stable_text(once) == stable_text(again)
