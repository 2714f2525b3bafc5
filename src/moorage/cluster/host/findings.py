"""Findings about a host, for `moor doctor`.

Each rule is a pure function from the host's facts to one finding. A problem keeps pods from running
here; a warning names what does not work. A finding that can be fixed has the command for it.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path

import msgspec

from moorage.cluster.host import Inventory
from moorage.cluster.host.packages import PACKAGES
from moorage.engine.handlers import KNOWN_RUNTIMES, Handler
from moorage.engine.handlers.discovery import definitions
from moorage.engine.handlers.features import RECURSIVE_READ_ONLY_KERNEL
from moorage.engine.handlers.weakening import outdated_patterns
from moorage.engine.requirements import NEEDED_PROGRAMS
from moorage.linux.capabilities import NEEDED
from moorage.linux.trust import distrust

_SCARCE_BYTES = 2 * 1024**3
_TOO_LITTLE_BYTES = 512 * 1024**2
_OLDEST_KERNEL = (4, 19)
# The runtimes of RuntimeClass's own documents: reported even where they are not installed.
_EXPECTED_RUNTIMES = frozenset({"runc", "crun", "runsc", "kata"})


class State(StrEnum):
    """Severity of a finding; with a PROBLEM no pod can run here."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


class Finding(msgspec.Struct, frozen=True):
    """One fact about the host: its meaning, and the command that fixes it."""

    subject: str
    state: State
    meaning: str
    remedy: str = ""


def examine(
    host: Inventory, handlers: Sequence[Handler], handler_directories: Sequence[Path] = ()
) -> tuple[Finding, ...]:
    """Return every finding about a host and its runtime handlers, in the order to fix them.

    Reads `handler_directories`, and checks who may write the programs that an engine runs.
    """
    by_rules = (rule(host) for rule in _RULES)
    files = [path for directory in handler_directories for path in definitions(directory)]
    return (*by_rules, *_runtimes(handlers), *_distrusted(host, files), *_outdated(files))


def can_run_pods(findings: Iterable[Finding]) -> bool:
    """Return whether no finding keeps pods from running here."""
    return all(finding.state is not State.PROBLEM for finding in findings)


def _user(host: Inventory) -> Finding:
    if host.is_root:
        return Finding("user", State.OK, "root")
    return Finding(
        "user",
        State.PROBLEM,
        "not root: a control plane works, pods cannot run",
        "run as root: sudo moor …",
    )


def _system(host: Inventory) -> Finding:
    if host.system.is_debian_like:
        return Finding("system", State.OK, host.system.name)
    return Finding(
        "system",
        State.WARNING,
        f"{host.system.name} is not Debian or like it: packages have other names, and are not "
        "installed for you",
    )


def _kernel(host: Inventory) -> Finding:
    kernel = host.kernel
    if kernel.version < _OLDEST_KERNEL:
        oldest = ".".join(map(str, _OLDEST_KERNEL))
        return Finding(
            "kernel",
            State.PROBLEM,
            f"Linux {kernel.release} is older than {oldest}, the oldest that runtimes support",
            "apt-get dist-upgrade, then reboot",
        )
    if kernel.version < RECURSIVE_READ_ONLY_KERNEL:
        return Finding(
            "kernel",
            State.WARNING,
            f"Linux {kernel.release} has no recursive read-only mounts: they came with 5.12",
        )
    return Finding("kernel", State.OK, f"Linux {kernel.release} on {kernel.machine}")


def _capabilities(host: Inventory) -> Finding:
    missing = [name for name in NEEDED if name not in host.capabilities]
    if host.is_root and missing:
        return Finding(
            "capabilities",
            State.PROBLEM,
            f"root lacks {', '.join(missing)}, without which containers cannot be made",
            "run outside a container, or in one with --privileged",
        )
    if not host.can_lower_oom_score:
        return Finding(
            "capabilities",
            State.WARNING,
            "without CAP_SYS_RESOURCE no process gets a lower OOM score than its parent: "
            "sandboxes and guaranteed pods get the engine's own",
        )
    return Finding("capabilities", State.OK, "all required capabilities")


def _cgroups(host: Inventory) -> Finding:
    cgroups = host.cgroups
    if cgroups.missing:
        return Finding(
            "cgroups",
            State.PROBLEM,
            f"layout {cgroups.layout}, without the controllers {', '.join(cgroups.missing)}: "
            "pods cannot be limited",
            "turn them on in the kernel's command line or for this container, then reboot",
        )
    if cgroups.is_hugetlb_apart:
        return Finding(
            "cgroups",
            State.WARNING,
            "hybrid, with the hugetlb controller on version 2, which crun refuses; "
            "moor up moves it and moves it back",
            "mkdir -p /sys/fs/cgroup/hugetlb && "
            "mount -t cgroup -o hugetlb cgroup /sys/fs/cgroup/hugetlb",
        )
    return Finding("cgroups", State.OK, f"layout {cgroups.layout}")


def _storage(host: Inventory) -> Finding:
    directory = host.disk.directory
    if host.disk.overlay is None:
        return Finding(
            "storage", State.WARNING, f"overlay mounts on {directory} can only be tried as root"
        )
    if not host.disk.overlay:
        return Finding(
            "storage",
            State.WARNING,
            f"overlay mounts don't work on {directory}: every container gets a copy of its image, "
            "which takes time and space",
            "choose a directory on ext4 or xfs with --data-dir",
        )
    return Finding("storage", State.OK, f"overlay mounts work on {directory}")


def _disk(host: Inventory) -> Finding:
    free = host.disk.free_bytes
    text = f"{free / 1024**3:.1f} GiB free on {host.disk.directory}"
    remedy = "free some, or choose another directory with --data-dir"
    if free < _TOO_LITTLE_BYTES:
        return Finding("disk", State.PROBLEM, f"{text}: too little to start", remedy)
    if free < _SCARCE_BYTES:
        return Finding("disk", State.WARNING, f"{text}: images will soon fill it", remedy)
    return Finding("disk", State.OK, text)


def _engine(host: Inventory) -> Finding:
    missing = [name for name in NEEDED_PROGRAMS if name not in host.tools]
    if missing:
        return Finding(
            "engine",
            State.PROBLEM,
            f"{', '.join(missing)} not found: no engine of our own; a running one can be given "
            "with --cri",
            installation_of(*(NEEDED_PROGRAMS[name] for name in missing)),
        )
    for name in NEEDED_PROGRAMS:
        tool = host.tools[name]
        if not tool.version:
            problem = f"{tool.path} does not print its version: {tool.complaint}"
            return Finding("engine", State.PROBLEM, problem)
    versions = ", ".join(f"{name} {host.tools[name].version}" for name in NEEDED_PROGRAMS)
    return Finding("engine", State.OK, f"our own, with {versions}")


def _cni(host: Inventory) -> Finding:
    if host.cni.missing:
        return Finding(
            "network plugins",
            State.PROBLEM,
            f"{', '.join(host.cni.missing)} not found: pods get no network",
            installation_of("containernetworking-plugins"),
        )
    return Finding("network plugins", State.OK, str(host.cni.directory))


def _bridge(host: Inventory) -> Finding:
    tool = host.tools.get("ip")
    if tool is None:
        return Finding(
            "network tools",
            State.PROBLEM,
            "ip not found: the pods' bridge cannot be made",
            installation_of("iproute2"),
        )
    return Finding("network tools", State.OK, f"iproute2 {tool.version}")


def _address(host: Inventory) -> Finding:
    if host.has_ipv4_route:
        return Finding("address", State.OK, "this host has an IPv4 route to others")
    return Finding(
        "address",
        State.WARNING,
        "this host has no IPv4 route to others, and pods have IPv4 only: they reach each other and "
        "this host, nothing beyond, and with --cri not the API either",
    )


def _firewall(host: Inventory) -> Finding:
    if host.firewall.is_usable:
        tool = host.tools.get("iptables")
        return Finding("iptables", State.OK, tool.version if tool else "usable")
    remedy = "" if "iptables" in host.tools else installation_of("iptables")
    return Finding(
        "iptables",
        State.WARNING,
        f"{host.firewall.complaint}: pods reach each other and this host, nothing beyond, and "
        "have no host ports",
        remedy,
    )


def _filter(host: Inventory) -> Finding:
    tool = host.tools.get("nft")
    if tool is not None:
        return Finding("nftables", State.OK, tool.version)
    return Finding(
        "nftables",
        State.WARNING,
        "nft not found: Services are not routed, and pods that a NetworkPolicy selects do not "
        "start",
        installation_of("nftables"),
    )


def _images(host: Inventory) -> Finding:
    has_busybox, has_catatonit = "busybox" in host.tools, "catatonit" in host.tools
    if not has_busybox and not has_catatonit:
        return Finding(
            "images",
            State.WARNING,
            "neither catatonit nor busybox found: pods that share processes, and those of "
            "runtimes with a kernel of their own, cannot run, nor can the examples",
            installation_of("catatonit", "busybox-static"),
        )
    if not has_busybox:
        return Finding(
            "images",
            State.WARNING,
            "busybox not found: the examples' images cannot be made",
            installation_of("busybox-static"),
        )
    return Finding("images", State.OK, "made from busybox" + ", catatonit" * has_catatonit)


def _kvm(host: Inventory) -> Finding:
    if host.has_kvm:
        return Finding("virtualization", State.OK, "/dev/kvm is usable")
    return Finding(
        "virtualization", State.WARNING, "/dev/kvm cannot be opened: no runtime with VMs works"
    )


def _init(host: Inventory) -> Finding:
    return Finding("init", State.OK, "systemd" if host.has_systemd else "not systemd")


_RULES: tuple[Callable[[Inventory], Finding], ...] = (
    _user,
    _system,
    _kernel,
    _capabilities,
    _cgroups,
    _init,
    _storage,
    _disk,
    _engine,
    _cni,
    _bridge,
    _address,
    _firewall,
    _filter,
    _images,
    _kvm,
)


def _runtimes(handlers: Sequence[Handler]) -> Iterator[Finding]:
    """Yield one finding for each runtime, which applies to all its handlers."""
    has_default = any(handler.available and handler.runtime in _DEFAULTS for handler in handlers)
    for runtime in dict.fromkeys(handler.runtime for handler in handlers):
        named = [handler for handler in handlers if handler.runtime == runtime]
        first = named[0]
        names = ", ".join(handler.handler for handler in named)
        if first.available:
            meaning = f"{first.version}; handlers: {names}"
            defect = next((handler for handler in named if handler.defect), None)
            if defect is None:
                yield Finding(f"runtime {runtime}", State.OK, meaning)
            else:
                meaning = f"{meaning}; {defect.defect}"
                yield Finding(f"runtime {runtime}", State.WARNING, meaning, defect.defect_remedy)
        elif first.path or runtime in _EXPECTED_RUNTIMES:
            is_last_hope = runtime in _DEFAULTS and not has_default
            state = State.PROBLEM if is_last_hope else State.WARNING
            meaning = f"{first.reason}; no handlers {names}"
            yield Finding(f"runtime {runtime}", state, meaning, first.remedy)


_DEFAULTS = frozenset(runtime.name for runtime in KNOWN_RUNTIMES if runtime.can_be_default)


def _outdated(files: Iterable[Path]) -> Iterator[Finding]:
    """Yield a finding for each outdated handler file that lets pods weaken their sandbox."""
    for path in files:
        if patterns := outdated_patterns(path):
            listed = ", ".join(patterns)
            yield Finding(
                f"handler file {path.name}",
                State.WARNING,
                f"{path} is from an earlier version and passes the pods' annotations {listed} to "
                "the runtime: with those a pod weakens its own sandbox",
                f"rm {shlex.quote(str(path))}, and `moor down --keep-pods` and `moor up` write it "
                "again; or take these patterns out of it, if it has changes of your own",
            )


def _distrusted(host: Inventory, files: Iterable[Path]) -> Iterator[Finding]:
    """Yield a finding for each file that the engine refuses because other users can write it."""
    files_to_check = [("handler file", path) for path in files]
    files_to_check += [(f"program {name}", tool.path) for name, tool in host.tools.items()]
    if host.cni.directory is not None:
        files_to_check.append(("network plugins", host.cni.directory))
    for subject, path in files_to_check:
        distrusted = distrust(path)
        if distrusted is not None:
            meaning = f"{path} is refused: {distrusted.path} {distrusted.problem}"
            yield Finding(subject, State.WARNING, meaning, distrusted.remedy)


def installation_of(*packages: str) -> str:
    """Return the command that installs packages."""
    unknown = set(packages) - PACKAGES.keys()
    if unknown:
        raise KeyError(f"no package of a node: {', '.join(sorted(unknown))}")
    return f"apt-get install {' '.join(packages)}"
