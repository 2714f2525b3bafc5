"""Verdicts on features: evidence to Supported, Unsupported or Unknown, with a line of evidence.

Pure. `READINGS` is the table: feature, the probes that it is read from, and how. What happens to a
probe that was refused, cut off or could not be run is the same for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from moorage.api.runtime_group import SUPPORTED, UNKNOWN, UNSUPPORTED, ProfileFeature
from moorage.runtimeclass.features import (
    CAPABILITIES,
    FEATURES,
    SYSTEM_CALLS,
    capability_feature,
    system_call_feature,
)
from moorage.runtimeclass.isolation import Isolation
from moorage.runtimes.probing.carrier import Outcome, ProbeResult
from moorage.runtimes.probing.evidence import Evidence, isolation_of, stable_text
from moorage.runtimes.probing.host import HostFacts
from moorage.runtimes.probing.programs import ProgramOutput
from moorage.runtimes.probing.programs.capabilities import OPERATIONS
from moorage.runtimes.probing.programs.devices import BLOCK_DEVICES, CHARACTER_DEVICE, GPU_DEVICES
from moorage.runtimes.probing.programs.facts import CGROUP_LIMITS, NODE_DEVICES, RECURSIVE_MOUNT
from moorage.runtimes.probing.programs.limits import PROCESS_DOUBLINGS
from moorage.runtimes.probing.programs.nesting import STEPS
from moorage.runtimes.probing.programs.networks import ANSWER, ROUNDS
from moorage.runtimes.probing.programs.output import error_name
from moorage.runtimes.probing.programs.serving import GREETING
from moorage.runtimes.probing.suite import (
    CHECKPOINT,
    EXEC,
    FETCH,
    LARGE_CPU_MILLIS,
    MEMORY_BYTES,
    PLAIN,
    RESIZE,
)


class Finding(msgspec.Struct, frozen=True):
    """A verdict and its evidence, one line. A passing one may be another when probed again."""

    state: str
    message: str
    is_passing: bool = False


Judge = Callable[[Evidence], Finding]


class Reading(msgspec.Struct, frozen=True):
    """Probes whose results are needed, and the function that reads them when all ended.

    `condition` is asked first: the finding that the node's own facts suffice for, else None.
    """

    probes: tuple[str, ...]
    judge: Judge
    condition: Callable[[HostFacts], Finding | None] | None = None


def findings(evidence: Evidence) -> dict[str, Finding]:
    """Return the finding of each feature of the vocabulary, in its order."""
    return {name: _finding(name, evidence) for name in FEATURES}


def probes_of(features: Iterable[str]) -> frozenset[str]:
    """Return the probes that the findings of features are read from; for a step, its probe."""
    return frozenset(
        probe.partition("/")[0] for feature in features for probe in READINGS[feature].probes
    )


def profile_features(found: dict[str, Finding]) -> tuple[ProfileFeature, ...]:
    """Return findings as a profile states them."""
    return tuple(
        ProfileFeature(name, finding.state, finding.message) for name, finding in found.items()
    )


def supported(message: str) -> Finding:
    return Finding(SUPPORTED, message)


def unsupported(message: str) -> Finding:
    return Finding(UNSUPPORTED, message)


def unknown(message: str, *, is_passing: bool = False) -> Finding:
    return Finding(UNKNOWN, message, is_passing)


def _finding(feature: str, evidence: Evidence) -> Finding:
    reading = READINGS[feature]
    if not evidence.has_programs:
        return unknown(f"there is no probe program for {evidence.host.architecture}")
    decided = reading.condition(evidence.host) if reading.condition else None
    if decided is not None:
        return decided
    for probe in reading.probes:
        failure = _failure(probe, evidence.result(probe))
        if failure is not None:
            return failure
    return reading.judge(evidence)


def _failure(probe: str, result: ProbeResult | None) -> Finding | None:
    """Return the finding where a probe did not end; None where it did."""
    if result is None:
        return unknown(f"the probe {probe} was not run", is_passing=True)
    match result.outcome:
        case Outcome.REFUSED:
            return unsupported(f"refused: {stable_text(result.error)}")
        case Outcome.CUT_OFF:
            why = stable_text(result.error)
            return unknown(f"the probe {probe} was cut off: {why}", is_passing=True)
        case Outcome.UNSUPPORTED:
            return unknown(stable_text(result.error) or "it cannot be tried from here")
    return None


def _ended(result: ProbeResult | None) -> str:
    """Return how a program ended, for a probe whose program printed nothing."""
    if result is None:
        return "it was not run"
    reason = f" ({result.reason})" if result.reason not in ("", "Completed", "Error") else ""
    return f"the program ended with status {result.exit_code}{reason}"


def _unprinted(evidence: Evidence, probe: str) -> Finding:
    return unsupported(f"{_ended(evidence.result(probe))} before it printed a result")


def _if(condition: bool, message: str) -> Finding:
    return supported(message) if condition else unsupported(message)


def _outcome(what: str, result: int) -> str:
    return f"{what}: {error_name(result) or 'succeeds'}"


# Namespaces.


def _interfaces(output: ProgramOutput) -> tuple[str, ...]:
    lines = output.section("/proc/net/dev").splitlines()
    return tuple(sorted(line.partition(":")[0].strip() for line in lines if ":" in line))


def _host_network(evidence: Evidence) -> Finding:
    seen = _interfaces(evidence.output("host-network"))
    if not seen:
        return _unprinted(evidence, "host-network")
    message = f"interfaces seen: {', '.join(seen[:8])}"
    shared = evidence.host.interfaces
    if shared:
        # Pods come and go meanwhile, so the interfaces of the host are not exactly the same.
        lasting = {name for name in shared if not name.startswith(("veth", "cali", "lxc", "moor"))}
        return _if(lasting <= set(seen), message)
    plain = _interfaces(evidence.output(PLAIN))
    return _if(seen != plain, message)


def _is_own_kernel(evidence: Evidence) -> bool:
    """Return whether containers have a kernel of their own, whose namespaces are not the node's."""
    level = isolation_of(evidence.output(PLAIN), evidence.host)
    return level is not None and level is not Isolation.SHARED_KERNEL


def _own_kernel(what: str) -> Finding:
    return unsupported(f"containers have a kernel of their own: {what} is the sandbox's")


def _host_pid(evidence: Evidence) -> Finding:
    output = evidence.output("host-pid")
    if not output.results:
        return _unprinted(evidence, "host-pid")
    if _is_own_kernel(evidence):
        return _own_kernel("its process table")
    pid, first = output.results.get("getpid", 0), output.section("/proc/1/comm")
    expected = evidence.host.first_process
    message = f"process 1 is {first or 'not visible'}"
    return _if(pid != 1 and (not expected or first == expected), message)


def _host_ipc(evidence: Evidence) -> Finding:
    link = evidence.output("host-ipc").section("/proc/self/ns/ipc")
    plain = evidence.output(PLAIN).section("/proc/self/ns/ipc")
    if _is_own_kernel(evidence):
        return _own_kernel("its System V IPC")
    if not link:
        return unknown("the IPC namespace is not visible inside")
    expected = evidence.host.ipc_namespace
    is_host = link == expected if expected else link != plain
    return _if(is_host, f"the IPC namespace is {'' if is_host else 'not '}the node's")


def _shared_processes(evidence: Evidence) -> Finding:
    output = evidence.output("shared-processes")
    pid = output.results.get("getpid", 0)
    if not pid:
        return _unprinted(evidence, "shared-processes")
    if pid == 1:
        return unsupported("the container has a process table of its own: its process is number 1")
    return supported("the container shares a process table: its process is not number 1")


def _user_namespaces(evidence: Evidence) -> Finding:
    mapping = " ".join(evidence.output("user-namespace").section("/proc/self/uid_map").split())
    if not mapping:
        return _unprinted(evidence, "user-namespace")
    return _if(
        mapping != "0 0 4294967295",
        "user ids are mapped to others of the node"
        if mapping != "0 0 4294967295"
        else "user ids are the node's: 0 0 4294967295",
    )


# Security.


def _privileged(evidence: Evidence) -> Finding:
    output = evidence.output("privileged")
    if not output.results:
        return _unprinted(evidence, "privileged")
    effective = _mask(output.status_value("CapEff"))
    plain = _mask(evidence.output(PLAIN).status_value("CapEff"))
    seen = [path for path in NODE_DEVICES if output.results.get(f"device {path}", -1) >= 0]
    if effective is None or plain is None or effective == plain:
        return unsupported("it has no more capabilities than another container")
    if _is_own_kernel(evidence):
        return unsupported("its capabilities and devices are the sandbox's, not the node's")
    if not seen:
        return unsupported("it has all capabilities, but none of the node's devices")
    return supported(f"it has all capabilities and {', '.join(seen)}")


def _mask(text: str) -> int | None:
    try:
        return int(text, 16)
    except ValueError:
        return None


def _seccomp(evidence: Evidence) -> Finding:
    output, plain = evidence.output("seccomp"), evidence.output(PLAIN)
    if not output.results:
        return _unprinted(evidence, "seccomp")
    mode = output.status_value("Seccomp")
    denied = [
        name
        for name in ("keyctl", "add-key")
        if error_name(output.results.get(name, 0)) == "EPERM"
        and output.results.get(name) != plain.results.get(name)
    ]
    if denied:
        return supported(f"RuntimeDefault denies {denied[0]}, which is allowed without it")
    return unsupported(
        f"under RuntimeDefault no call is denied that is allowed without it (mode {mode or '?'})"
    )


def _apparmor(evidence: Evidence) -> Finding:
    profile = evidence.output("apparmor").section("/proc/self/attr/current")
    confined = bool(profile) and not profile.startswith("unconfined")
    return _if(confined, f"its profile is {stable_text(profile) or 'not visible'}")


def _selinux(evidence: Evidence) -> Finding:
    label = evidence.output("selinux").section("/proc/self/attr/current").strip("\0")
    return _if(label.endswith("s0:c1,c2"), f"its label is {stable_text(label) or 'not visible'}")


def _no_new_privileges(evidence: Evidence) -> Finding:
    output = evidence.output("restricted")
    if not output.results:
        return _unprinted(evidence, "restricted")
    is_set = output.results.get("no-new-privileges", 0) == 1
    return _if(is_set, f"prctl says that it is {'' if is_set else 'not '}set")


def _read_only_root(evidence: Evidence) -> Finding:
    output = evidence.output("restricted")
    if not output.results:
        return _unprinted(evidence, "restricted")
    result = output.results.get("write-to-root", 0)
    return _if(error_name(result) == "EROFS", _outcome("a file in / is created", result))


def _nesting(evidence: Evidence) -> Finding:
    output = evidence.output("nesting")
    if not output.results:
        return _unprinted(evidence, "nesting")
    for step in STEPS:
        result = output.results.get(step, -1)
        if result < 0:
            return unsupported(_outcome(f"step {step}, privileged", result))
    return supported("privileged, namespaces, mounts and pivot_root succeed")


# Volumes and devices.


def _recursive_mount(evidence: Evidence) -> Finding:
    output = evidence.output("recursive-mount")
    if not output.results:
        return _unprinted(evidence, "recursive-mount")
    if output.results.get("submount", -1) < 0:
        return unknown("the node has no mount below /dev to try it with")
    is_read_only = bool(output.results.get("submount-flags", 0) & 1)
    what = "read-only" if is_read_only else "writable"
    return _if(is_read_only, f"a mount below a recursively read-only volume is {what}")


def _propagation(evidence: Evidence) -> Finding:
    table = evidence.output("propagation").section("/proc/self/mountinfo")
    for line in table.splitlines():
        fields = line.split(" ")
        if len(fields) > 6 and fields[4] == RECURSIVE_MOUNT:
            has_master = any(field.startswith("master:") for field in fields[6:])
            what = "receives" if has_master else "does not receive"
            return _if(has_master, f"the mount of the volume {what} mounts of the node")
    return unsupported("the volume is not among the mounts that the container sees")


def _devices(evidence: Evidence) -> Finding:
    results = evidence.output("device").results
    if not results:
        return _unprinted(evidence, "device")
    opened = results.get(CHARACTER_DEVICE, -1)
    if opened < 0:
        return unsupported(_outcome(f"{CHARACTER_DEVICE} is opened", opened))
    return _if(results.get("read", -1) == 1, f"{CHARACTER_DEVICE} is opened and read")


def _device_of(probe: str, candidates: tuple[str, ...]) -> Judge:
    def judge(evidence: Evidence) -> Finding:
        present = [path for path in candidates if path in (evidence.host.devices or ())]
        result = evidence.output(probe).results.get(present[0], -1)
        return _if(result >= 0, _outcome(f"{present[0]} is opened", result))

    return judge


def _needs_device(candidates: tuple[str, ...], what: str) -> Callable[[HostFacts], Finding | None]:
    def condition(host: HostFacts) -> Finding | None:
        if host.devices is None:
            return unknown("the node's devices are not known from here")
        if not set(candidates) & set(host.devices):
            return unsupported(f"the node has no {what}")
        return None

    return condition


def _needs_module(module: str, name: str) -> Callable[[HostFacts], Finding | None]:
    def condition(host: HostFacts) -> Finding | None:
        if host.security_modules is None or module in host.security_modules:
            return None
        return unsupported(f"the node's kernel has no {name}")

    return condition


def _needs_shared_mounts(host: HostFacts) -> Finding | None:
    if host.shares_mounts is False:
        return unknown("mounts of the node's /dev do not propagate, so it cannot be tried")
    return None


# Network.


def _socket(name: str, what: str) -> Judge:
    def judge(evidence: Evidence) -> Finding:
        output = evidence.output("networks")
        if not output.results:
            return _unprinted(evidence, "networks")
        result = output.results.get(name, -1)
        return _if(result >= 0, _outcome(what, result))

    return judge


def _blocking_reads(evidence: Evidence) -> Finding:
    output = evidence.output("networks")
    if not output.results:
        return _unprinted(evidence, "networks")
    for number in range(ROUNDS):
        accepted, received = (
            output.results.get(f"{name}-{number}", -1) for name in ("accept", "read")
        )
        if signal := output.signal_of(f"read-{number}"):
            return unsupported(f"a read from a socket was ended by signal {signal}")
        if accepted < 0:
            return unsupported(_outcome("a connection is accepted", accepted))
        if received != len(ANSWER):
            return unsupported(_outcome("a read before the data arrives", received))
    return supported("a read from a socket waits for its data")


def _no_network(evidence: Evidence) -> Finding:
    seen = _interfaces(evidence.output(PLAIN))
    message = f"interfaces in a pod's network: {', '.join(seen) or 'none'}"
    return _if(not set(seen) - {"lo"}, message)


# Lifecycle.


def _exec(evidence: Evidence) -> Finding:
    result = evidence.result(f"kept/{EXEC}")
    assert result is not None
    has_printed = bool(evidence.output(f"kept/{EXEC}").results)
    if result.exit_code == 0 and has_printed:
        return supported("a command in a running container printed its output")
    return unsupported(f"a command in a running container: {_ended(result)}")


def _resize(evidence: Evidence) -> Finding:
    result = evidence.result(f"kept/{RESIZE}")
    assert result is not None
    return _if(result.is_success, f"other limits were taken: {_ended(result)}"
               if not result.is_success else "other limits were taken while it ran")  # fmt: skip


def _port_forward(evidence: Evidence) -> Finding:
    result = evidence.result(f"kept/{FETCH}")
    assert result is not None
    if result.output == GREETING:
        return supported("a forwarded port answered")
    return unsupported(f"a forwarded port did not answer: {stable_text(result.error) or 'no data'}")


def _checkpoint(evidence: Evidence) -> Finding:
    result = evidence.result(f"kept/{CHECKPOINT}")
    assert result is not None
    return _if(
        result.is_success, "a checkpoint was written" if result.is_success else _ended(result)
    )


# Limits.


def _cpu_limit(evidence: Evidence) -> Finding:
    small, large = (
        evidence.output(name).results.get("work", -1) for name in ("cpu-small", "cpu-large")
    )
    if small < 0 or large < 1:
        return unknown("the programs did not report their work", is_passing=True)
    share = small / large
    if share < _LIMITED_SHARE:
        return supported("with a tenth of the CPU much less work is done")
    if share > _FREE_SHARE:
        return unsupported("with a tenth of the CPU the same work is done")
    return unknown("the node is too busy to say what the CPU limit changes", is_passing=True)


_LIMITED_SHARE, _FREE_SHARE = 0.6, 0.9


def _memory_limit(evidence: Evidence) -> Finding:
    result = evidence.result("memory")
    assert result is not None
    taken = evidence.output("memory").results.get("taken")
    if taken is not None and taken > 0:
        return unsupported("it took twice its memory limit and went on")
    if taken is not None:
        return supported(_outcome("more memory than the limit is taken", taken))
    return supported(f"it took more than its memory limit, and {_ended(result)}")


def _pids_limit(evidence: Evidence) -> Finding:
    result = evidence.result("processes")
    assert result is not None
    results = evidence.output("processes").results
    if not results:
        return supported(f"it made more processes than its limit, and {_ended(result)}")
    refused = [
        number for number in range(PROCESS_DOUBLINGS) if results.get(f"doubling-{number}", 0) < 0
    ]
    if refused:
        return supported("more processes than the limit: EAGAIN")
    return unsupported("it made more processes than its limit")


def _cpu_visible(evidence: Evidence) -> Finding:
    results = evidence.output("limited").results
    words = results.get("affinity-bytes", -1) // 8
    if words < 1:
        return _unprinted(evidence, "limited")
    count = sum(
        (results.get(f"affinity-{word}", 0) & (1 << 64) - 1).bit_count()
        for word in range(min(words, 4))
    )
    limit = LARGE_CPU_MILLIS // 1000
    if evidence.host.cpu_count == limit:
        return unknown("the node has no more processors than the probe's limit")
    return _if(count == limit, f"with a limit of {limit} CPU it sees {count} processors")


def _memory_visible(evidence: Evidence) -> Finding:
    results = evidence.output("limited").results
    if results.get("sysinfo", -1) < 0:
        return _unprinted(evidence, "limited")
    unit = results.get("memory-unit", 1) & 0xFFFFFFFF or 1
    total = results.get("total-memory", 0) * unit
    is_limit = 0 < total <= MEMORY_BYTES * 11 // 10
    seen = "its limit" if is_limit else "another size than its limit"
    return _if(is_limit, f"it sees {seen} as the size of memory")


def _cgroup_visible(evidence: Evidence) -> Finding:
    output = evidence.output("limited")
    for path in CGROUP_LIMITS:
        if output.section(path) == str(MEMORY_BYTES):
            return supported(f"{path} is its memory limit")
    return unsupported("its memory limit is in no file of /sys/fs/cgroup")


def _terminal(evidence: Evidence) -> Finding:
    output = evidence.output("terminal")
    if not output.results:
        return _unprinted(evidence, "terminal")
    result = output.results.get("terminal", -1)
    return _if(result >= 0, _outcome("settings of the terminal are read", result))


# System calls and capabilities.

_FAILS_AS_IT_SHOULD = {"futex_waitv": frozenset({"EAGAIN"})}
_CALLED = {
    "statx": "statx with AT_NO_AUTOMOUNT, as `ls` and `stat` of coreutils 9 call it",
    "clone3": "clone3 without flags",
    "futex_waitv": "futex_waitv on a value that has changed",
}


def _system_call(name: str) -> Judge:
    def judge(evidence: Evidence) -> Finding:
        output = evidence.output("system-calls")
        if name not in output.results:
            return _unprinted(evidence, "system-calls")
        if signal := output.signal_of(name):
            return unsupported(f"{name} ended the process with signal {signal}")
        result = output.results[name]
        error = error_name(result)
        works = not error or error in _FAILS_AS_IT_SHOULD.get(name, ())
        shown = "succeeds" if works else error
        return _if(works, f"{_CALLED.get(name, name)}: {shown}")

    return judge


# Errors after the check of the capability.
_PERMITTED = {
    "DAC_READ_SEARCH": frozenset({"EBADF", "ESTALE", "EINVAL"}),
    "SYS_BOOT": frozenset({"EINVAL"}),
    "SYS_MODULE": frozenset({"ENOENT"}),
    "SYS_PACCT": frozenset({"ENOENT"}),
    "SYS_TIME": frozenset({"EINVAL"}),
}
# What a kernel without that function answers to everyone.
_ABSENT = {"SYS_MODULE": "ENOSYS", "SYS_PACCT": "ENOSYS"}
_BITS = {
    name: number
    for number, name in enumerate(
        (
            "CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID",
            "SETUID", "SETPCAP", "LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST",
            "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER", "SYS_MODULE", "SYS_RAWIO",
            "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE",
            "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE",
            "AUDIT_CONTROL", "SETFCAP", "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM",
            "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF", "CHECKPOINT_RESTORE",
        )
    )
}  # fmt: skip


def _capability(name: str) -> Judge:
    def judge(evidence: Evidence) -> Finding:
        output = evidence.output("capabilities")
        effective = _mask(output.status_value("CapEff"))
        if effective is None:
            return _unprinted(evidence, "capabilities")
        if not effective >> _BITS[name] & 1:
            return unsupported("it is not in the effective set of a container that adds ALL")
        if name not in OPERATIONS:
            return _effective_only(evidence)
        result = output.results.get(name, -1)
        error = error_name(result)
        if _ABSENT.get(name) == error and not _is_own_kernel(evidence):
            return unknown("the node's kernel lacks the function that it permits")
        works = not error or error in _PERMITTED.get(name, ())
        shown = "permitted" if works else error
        return _if(works, f"what it permits was tried: {shown}")

    return judge


def _effective_only(evidence: Evidence) -> Finding:
    level = isolation_of(evidence.output(PLAIN), evidence.host)
    if level is Isolation.USER_SPACE_KERNEL or level is None:
        return unknown("it is in the effective set; what it permits cannot be tried harmlessly")
    return supported("it is in the effective set, and the kernel is Linux")


_KEPT = "kept"

READINGS: dict[str, Reading] = {
    "host-network": Reading((PLAIN, "host-network"), _host_network),
    "host-pid": Reading((PLAIN, "host-pid"), _host_pid),
    "host-ipc": Reading((PLAIN, "host-ipc"), _host_ipc),
    "shared-process-namespace": Reading(("shared-processes",), _shared_processes),
    "user-namespaces": Reading(("user-namespace",), _user_namespaces),
    "privileged": Reading((PLAIN, "privileged"), _privileged),
    "seccomp": Reading((PLAIN, "seccomp"), _seccomp),
    "apparmor": Reading(("apparmor",), _apparmor, _needs_module("apparmor", "AppArmor")),
    "selinux": Reading(("selinux",), _selinux, _needs_module("selinux", "SELinux")),
    "no-new-privileges": Reading(("restricted",), _no_new_privileges),
    "read-only-root": Reading(("restricted",), _read_only_root),
    "nested-containers": Reading(("nesting",), _nesting),
    "recursive-read-only-mounts": Reading(("recursive-mount",), _recursive_mount),
    "mount-propagation": Reading(("propagation",), _propagation, _needs_shared_mounts),
    "devices": Reading(("device",), _devices, _needs_device((CHARACTER_DEVICE,), CHARACTER_DEVICE)),
    "gpu": Reading(("gpu",), _device_of("gpu", GPU_DEVICES), _needs_device(GPU_DEVICES, "GPU")),
    "block-volumes": Reading(
        ("block-device",),
        _device_of("block-device", BLOCK_DEVICES),
        _needs_device(BLOCK_DEVICES, "block device"),
    ),
    "raw-sockets": Reading(("networks",), _socket("raw", "a raw socket is made")),
    "packet-sockets": Reading(("networks",), _socket("packet", "a packet socket is made")),
    "ipv6": Reading(("networks",), _socket("ipv6-bind", "::1 is bound to")),
    "blocking-reads": Reading(("networks",), _blocking_reads),
    "no-network": Reading((PLAIN,), _no_network),
    "exec": Reading((_KEPT, f"{_KEPT}/{EXEC}"), _exec),
    "checkpoint": Reading((_KEPT, f"{_KEPT}/{CHECKPOINT}"), _checkpoint),
    "live-resize": Reading((_KEPT, f"{_KEPT}/{RESIZE}"), _resize),
    "port-forward": Reading((_KEPT, f"{_KEPT}/{FETCH}"), _port_forward),
    "cpu-limit": Reading(("cpu-small", "cpu-large"), _cpu_limit),
    "memory-limit": Reading(("memory",), _memory_limit),
    "pids-limit": Reading(("processes",), _pids_limit),
    "cpu-limit-visible": Reading(("limited",), _cpu_visible),
    "memory-limit-visible": Reading(("limited",), _memory_visible),
    "cgroup-visible": Reading(("limited",), _cgroup_visible),
    "terminal": Reading(("terminal",), _terminal),
    **{
        system_call_feature(name): Reading(("system-calls",), _system_call(name))
        for name in SYSTEM_CALLS
    },
    **{
        capability_feature(name): Reading((PLAIN, "capabilities"), _capability(name))
        for name in CAPABILITIES
    },
}
"""Feature → the probes that it is read from, and how."""
