"""Container capabilities.

Source: CRI Capability; containerd's default set; capabilities(7).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from moorage.engine.errors import InvalidError
from moorage.engine.oci.context import HostFacts
from moorage.linux.capabilities import NAMES
from moorage.wire.cri import pb

DEFAULT = frozenset(
    {
        "CAP_AUDIT_WRITE",
        "CAP_CHOWN",
        "CAP_DAC_OVERRIDE",
        "CAP_FOWNER",
        "CAP_FSETID",
        "CAP_KILL",
        "CAP_MKNOD",
        "CAP_NET_BIND_SERVICE",
        "CAP_NET_RAW",
        "CAP_SETFCAP",
        "CAP_SETGID",
        "CAP_SETPCAP",
        "CAP_SETUID",
        "CAP_SYS_CHROOT",
    }
)

_ALL = "ALL"
# Older gVisor builds refuse a whole spec for one of these.
_NEWEST = frozenset({"CAP_PERFMON", "CAP_BPF", "CAP_CHECKPOINT_RESTORE"})
_ORDER = {name: number for number, name in enumerate(NAMES)}


@dataclass(frozen=True, slots=True)
class CapabilitySets:
    """The capability sets of a process, names with CAP_.

    `held` is bounding, effective and permitted alike; `ambient` is inheritable too.
    """

    held: frozenset[str]
    ambient: frozenset[str] = frozenset()

    def document(self) -> dict[str, list[str]]:
        """Return the OCI `process.capabilities`."""
        held, ambient = in_order(self.held), in_order(self.ambient)
        return {
            "bounding": held,
            "effective": held,
            "permitted": held,
            "inheritable": ambient,
            "ambient": ambient,
        }


def container_capabilities(
    context: pb.LinuxContainerSecurityContext, host: HostFacts, *, is_virtualised: bool = False
) -> CapabilitySets:
    """Return a container's sets: `ALL` first, then single additions, then drops.

    A runtime with a kernel of its own grants capabilities in that kernel, whatever the engine has.
    Raises InvalidError for a name the kernel does not know, and for one requested by name that the
    engine does not have.
    """
    givable = host.known_capabilities if is_virtualised else host.own_capabilities
    every = givable - _NEWEST if is_virtualised else givable
    if context.privileged:
        return CapabilitySets(every)
    changes = context.capabilities
    added, drops = _names(changes.add_capabilities, host), _names(changes.drop_capabilities, host)
    ambient = _names(changes.add_ambient_capabilities, host)
    if _ALL in added:
        held = every
    elif _ALL in drops:
        held = frozenset()
    else:
        held = DEFAULT & givable
    named = (added | ambient) - {_ALL}
    _verify_givable(named - drops, givable)
    if _ALL in ambient:
        ambient = every
    held = (held | named | ambient) - drops
    return CapabilitySets(held, ambient & held)


def in_order(names: Iterable[str]) -> list[str]:
    """Return the names in the kernel's order."""
    return sorted(names, key=_ORDER.__getitem__)


def _names(names: Iterable[str], host: HostFacts) -> frozenset[str]:
    return frozenset(_name(name, host) for name in names)


def _name(name: str, host: HostFacts) -> str:
    """Return the kernel's name; the CRI's has no CAP_ prefix, though clients add it."""
    upper = name.upper()
    if upper == _ALL:
        return _ALL
    full = upper if upper.startswith("CAP_") else f"CAP_{upper}"
    if full not in host.known_capabilities:
        raise InvalidError(
            f"unknown capability {name!r} in security_context.capabilities; "
            "see capabilities(7) for the names this kernel has"
        )
    return full


def _verify_givable(capabilities: frozenset[str], givable: frozenset[str]) -> None:
    lacking = in_order(capabilities - givable)
    if lacking:
        raise InvalidError(
            f"capability {', '.join(lacking)} cannot be granted: the engine does not hold it; "
            "remove it from the request, or run the engine with it"
        )
