"""Properties: testable claims about a runtime class, each with the probe that proves it.

A probe is a pod of one container that runs a script and prints `KEY=VALUE` lines; a reader decides
from the outcome. What a kernel says of itself can be forged by a handler, so a property that a
kernel is not the node's fails on any one sign that it is: the identity of the boot above all, which
no two kernels share. Pure. Source: KEP-585 (what classes are for), proc(5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from moorage.runtimeclass.conformance.outcomes import NodeFacts, Outcome

Finding = tuple[bool, str]
"""Whether a property holds, and the evidence in a sentence."""

Reader = Callable[[Outcome, NodeFacts], Finding]


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """Probe pod of a property: a script of `sh`, or with `command` None the image's own program.

    `resources` are the container's; `image` names the image it needs, empty for the usual one.
    `may_fail` says that a pod which cannot be started is an outcome, too.
    """

    script: str | None = None
    resources: dict[str, Any] = {}
    image: str = ""
    may_fail: bool = False

    @property
    def command(self) -> list[str] | None:
        """Return the container's command, None for the image's own.

        What a shell complains of goes to the output too: a log has the pieces of two streams as
        they come, and half a complaint would stand before a finding in its line.
        """
        return None if self.script is None else ["sh", "-c", f"exec 2>&1\n{self.script}"]


class Property(msgspec.Struct, frozen=True, kw_only=True):
    """A property: its name, the claim that it proves, its probe, and how the outcome is read."""

    name: str
    claim: str
    probe: Probe
    read: Reader


WASM_IMAGE = "wasm"
"""Name of the image with a WebAssembly program, which the user has to give."""

_KERNEL_SCRIPT = """
echo release=$(uname -r)
read -r boot < /proc/sys/kernel/random/boot_id && echo boot=$boot
read -r version < /proc/version && echo version=$version
for bus in virtio pci xen vmbus; do
  for device in /sys/bus/$bus/devices/*; do
    [ -e "$device" ] && echo device=${device##*/}
  done
done
exit 0
"""
_PROCESSES_SCRIPT = """
read -r self rest < /proc/self/stat && echo self=$self
for process in /proc/[0-9]*; do echo process=${process##*/}; done
exit 0
"""
_FILES_SCRIPT = """
echo moorage > /tmp/moorage-probe && read -r back < /tmp/moorage-probe && echo back=$back
[ -e /etc/machine-id ] && read -r id < /etc/machine-id && echo machine=$id
exit 0
"""
_NETWORK_SCRIPT = """
tail -n +3 /proc/net/dev | while IFS=: read -r name rest; do echo interface=$name; done
if [ -n "$KUBERNETES_SERVICE_HOST" ] && command -v nc > /dev/null; then
  if nc -w 2 "$KUBERNETES_SERVICE_HOST" "$KUBERNETES_SERVICE_PORT" < /dev/null > /dev/null 2>&1
  then echo api=reached; else echo api=unreachable; fi
fi
exit 0
"""
_MEMORY_SCRIPT = """
echo began=yes
dd if=/dev/zero of=/dev/null bs=512M count=1 2>/dev/null && echo survived=yes
"""
_ROOT_SCRIPT = """
if mount -t tmpfs tmpfs /mnt 2>/dev/null; then echo mount=allowed; else echo mount=refused; fi
if mknod /tmp/disk b 8 0 2>/dev/null && head -c 1 /tmp/disk > /dev/null 2>&1
then echo disk=read; else echo disk=refused; fi
if echo 1 > /proc/sys/kernel/sysrq 2>/dev/null; then echo sysctl=written
else echo sysctl=refused; fi
exit 0
"""


def _runs(outcome: Outcome, node: NodeFacts) -> Finding:
    del node
    is_shown = outcome.value("proof") == "moorage"
    is_right = outcome.has_ended and outcome.exit_code == 7 and is_shown
    return is_right, f"output {'arrived' if is_shown else 'is missing'}, {_exit(outcome)}"


def _is_host_kernel(outcome: Outcome, node: NodeFacts) -> tuple[bool | None, str]:
    """Return whether the pod's kernel is the node's, None where nothing shows it, and why."""
    boot, release = outcome.value("boot"), outcome.value("release")
    if boot and node.boot_id and boot.lower() == node.boot_id.lower():
        return True, f"boot identity {boot} is that of node {node.name}, release {release}"
    if release and release == node.kernel and not boot:
        return True, f"kernel release {release} is that of node {node.name}"
    if not release:
        return None, f"the kernel's release is unknown, {_exit(outcome)}"
    if release != node.kernel:
        return False, f"kernel {release}, node {node.name} has {node.kernel}"
    return False, f"kernel {release} with a boot identity of its own"


def _shares_kernel(outcome: Outcome, node: NodeFacts) -> Finding:
    is_host, evidence = _is_host_kernel(outcome, node)
    return is_host is True, evidence


def _has_own_kernel(outcome: Outcome, node: NodeFacts) -> Finding:
    is_host, evidence = _is_host_kernel(outcome, node)
    return is_host is False, evidence


def _has_own_machine(outcome: Outcome, node: NodeFacts) -> Finding:
    is_host, evidence = _is_host_kernel(outcome, node)
    if is_host is not False:
        return False, evidence
    devices = outcome.values("device")
    if not outcome.value("boot"):
        return False, f"{evidence}; it has no boot identity, as a kernel on hardware has"
    if not devices:
        return False, f"{evidence}; it has no devices on a bus, as a machine has"
    return True, f"{evidence}; {len(devices)} devices, {devices[0]} among them"


def _sees_own_processes(outcome: Outcome, node: NodeFacts) -> Finding:
    del node
    own, seen = outcome.value("self"), outcome.values("process")
    is_alone = own == "1" and 1 <= len(seen) <= 4
    return is_alone, f"the program is process {own or '?'} and sees {len(seen)}, {_exit(outcome)}"


def _has_own_files(outcome: Outcome, node: NodeFacts) -> Finding:
    del node
    back = outcome.value("back")
    return back == "moorage", f"a file that was written reads {back!r}, {_exit(outcome)}"


def _has_own_network(outcome: Outcome, node: NodeFacts) -> Finding:
    names = [name for name in outcome.values("interface") if name != "lo"]
    is_own = bool(names) and bool(outcome.pod_ip) and outcome.pod_ip not in node.addresses
    shown = ", ".join(names) or "none"
    return is_own, f"interfaces beside lo: {shown}; pod address {outcome.pod_ip or 'none'}"


def _has_no_network(outcome: Outcome, node: NodeFacts) -> Finding:
    del node
    names, api = outcome.values("interface"), outcome.value("api")
    others = [name for name in names if name != "lo"]
    is_cut_off = outcome.exit_code == 0 and not others and api != "reached"
    shown = ", ".join(names) or "none"
    return is_cut_off, f"interfaces: {shown}; API server {api or 'not tried'}, {_exit(outcome)}"


def _is_killed_for_memory(outcome: Outcome, node: NodeFacts) -> Finding:
    del node
    began, survived = outcome.value("began"), outcome.value("survived")
    # The program, or its sandbox with it, dies of the signal KILL.
    is_dead = outcome.reason == "OOMKilled" or outcome.exit_code == 137
    is_limited = bool(began) and not survived and outcome.has_ended and is_dead
    more = "went on beyond its limit" if survived else _exit(outcome)
    return is_limited, f"a program that takes 512 MiB where 96 MiB are allowed: {more}"


def _is_confined(outcome: Outcome, node: NodeFacts) -> Finding:
    del node
    disk, sysctl = outcome.value("disk"), outcome.value("sysctl")
    is_kept = disk == "refused" and sysctl == "refused"
    tried = f"raw disk {disk or 'not tried'}, kernel setting {sysctl or 'not tried'}"
    return is_kept, tried if disk and sysctl else f"{tried}, {_exit(outcome)}"


def _runs_wasm(outcome: Outcome, node: NodeFacts) -> Finding:
    del node
    return outcome.has_ended and outcome.exit_code == 0, f"a WebAssembly program: {_exit(outcome)}"


def _refuses_native(outcome: Outcome, node: NodeFacts) -> Finding:
    del node
    is_run = outcome.value("native") == "yes"
    ran = "ran" if is_run else f"did not run: {outcome.error or _exit(outcome)}"
    return not is_run and (outcome.has_ended or bool(outcome.error)), f"a native program {ran}"


def _exit(outcome: Outcome) -> str:
    if not outcome.has_ended:
        return outcome.error or "it did not end"
    reason = f" ({outcome.reason})" if outcome.reason not in ("", "Completed", "Error") else ""
    return f"exit status {outcome.exit_code}{reason}"


def _memory_limit() -> dict[str, Any]:
    return {"limits": {"memory": "96Mi"}, "requests": {"memory": "96Mi"}}


_ALL = (
    Property(
        name="runs",
        claim="a program runs, its output arrives, and its exit status is reported",
        probe=Probe(script="echo proof=moorage; exit 7"),
        read=_runs,
    ),
    Property(
        name="own-files",
        claim="a program writes and reads files of its own",
        probe=Probe(script=_FILES_SCRIPT),
        read=_has_own_files,
    ),
    Property(
        name="own-processes",
        claim="a program sees the processes of its container alone",
        probe=Probe(script=_PROCESSES_SCRIPT),
        read=_sees_own_processes,
    ),
    Property(
        name="own-network",
        claim="a pod has an address of its own",
        probe=Probe(script=_NETWORK_SCRIPT),
        read=_has_own_network,
    ),
    Property(
        name="no-network",
        claim="a program reaches no network, nor the API server",
        probe=Probe(script=_NETWORK_SCRIPT),
        read=_has_no_network,
    ),
    Property(
        name="memory-limit",
        claim="a program that exceeds its memory limit is ended",
        probe=Probe(script=_MEMORY_SCRIPT, resources=_memory_limit()),
        read=_is_killed_for_memory,
    ),
    Property(
        name="confined-root",
        claim="root in the pod reads no disk of the node and changes no setting of its kernel",
        probe=Probe(script=_ROOT_SCRIPT),
        read=_is_confined,
    ),
    Property(
        name="shared-kernel",
        claim="programs run on the node's kernel",
        probe=Probe(script=_KERNEL_SCRIPT),
        read=_shares_kernel,
    ),
    Property(
        name="own-kernel",
        claim="programs do not run on the node's kernel",
        probe=Probe(script=_KERNEL_SCRIPT),
        read=_has_own_kernel,
    ),
    Property(
        name="own-machine",
        claim="the pod's kernel runs on a machine of its own, with devices on a bus",
        probe=Probe(script=_KERNEL_SCRIPT),
        read=_has_own_machine,
    ),
    Property(
        name="wasm-programs",
        claim="WebAssembly programs run",
        probe=Probe(image=WASM_IMAGE, may_fail=True),
        read=_runs_wasm,
    ),
    Property(
        name="no-native-programs",
        claim="native programs do not run",
        probe=Probe(script="echo native=yes", may_fail=True),
        read=_refuses_native,
    ),
)

PROPERTIES: dict[str, Property] = {one.name: one for one in _ALL}
"""Name → property, in the order in which they are tested."""


# Catalogue of standard classes: a name that means the same on every cluster, and its properties.
#
# Source: KEP-585, "Future work": conformant class names, which upstream never specified.

CATALOGUE_VERSION = 1
"""Version of the catalogue: a result of another one is stale."""


class StandardClass(msgspec.Struct, frozen=True):
    """A standard class: its name, what it means, and the names of its properties."""

    name: str
    meaning: str
    properties: tuple[str, ...]


_BASE = ("runs", "own-files", "own-processes")
_NETWORKED = (*_BASE, "own-network", "memory-limit", "confined-root")

_CATALOGUED = (
    StandardClass(
        "native",
        "containers on the node's kernel",
        (*_NETWORKED, "shared-kernel"),
    ),
    StandardClass(
        "sandboxed",
        "containers on a kernel that is not the node's: in user space or in a virtual machine",
        (*_NETWORKED, "own-kernel"),
    ),
    StandardClass(
        "vm-isolated",
        "containers in a virtual machine of their own",
        (*_NETWORKED, "own-kernel", "own-machine"),
    ),
    StandardClass(
        "wasm",
        "WebAssembly programs, and no others",
        ("wasm-programs", "no-native-programs"),
    ),
    StandardClass(
        "offline",
        "containers without any network",
        (*_BASE, "no-network"),
    ),
)

STANDARD_CLASSES: dict[str, StandardClass] = {one.name: one for one in _CATALOGUED}
"""Name → standard class, in the order of reports."""


class UnknownStandardError(ValueError):
    """A name that no standard class has."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"unknown standard class {name!r}: it must be one of {', '.join(STANDARD_CLASSES)}"
        )


def standard_class(name: str) -> StandardClass:
    """Return a standard class. Raises UnknownStandardError."""
    try:
        return STANDARD_CLASSES[name]
    except KeyError:
        raise UnknownStandardError(name) from None


def properties_of(standards: Iterable[StandardClass]) -> tuple[Property, ...]:
    """Return the properties of some standard classes, each once, in the order of testing."""
    wanted = {name for standard in standards for name in standard.properties}
    return tuple(one for name, one in PROPERTIES.items() if name in wanted)
