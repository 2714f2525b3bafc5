"""Built-in seccomp profile, cached for each set of capabilities.

Pure. Source: OCI runtime-spec, "Seccomp"; clone(2), personality(2), vsock(7).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from moorage.engine.oci.context import Document
from moorage.engine.oci.seccomp.syscalls import (
    AF_VSOCK,
    ALLOWED,
    ARCHITECTURES,
    BY_CAPABILITY,
    BY_MACHINE,
    NEW_NAMESPACES,
    PERSONALITIES,
    SINCE_KERNEL,
)

_ALLOW = "SCMP_ACT_ALLOW"
_REFUSE = "SCMP_ACT_ERRNO"
_EPERM = 1
_ENOSYS = 38
_FIRST_ON_S390 = 1


class SeccompProfiles:
    """The built-in profiles of one host, cached: sorting a few hundred names for each pod is
    avoided.

    The returned profiles are shared; do not modify them.
    """

    def __init__(self, machine: str, kernel: tuple[int, int]) -> None:
        self._machine = machine
        self._kernel = kernel
        self._made: dict[frozenset[str], Document] = {}

    def built_in(self, capabilities: frozenset[str]) -> Document:
        """Return the profile for a process with those capabilities, as OCI's `linux.seccomp`."""
        # Only these affect the profile, so the number of profiles is bounded.
        relevant = frozenset(capabilities & BY_CAPABILITY.keys())
        profile = self._made.get(relevant)
        if profile is None:
            profile = built_in_profile(relevant, self._machine, self._kernel)
            self._made[relevant] = profile
        return profile


def built_in_profile(
    capabilities: Collection[str], machine: str, kernel: tuple[int, int]
) -> Document:
    """Return the profile of RuntimeDefault, unless a handler's file names another."""
    return {
        "defaultAction": _REFUSE,
        "defaultErrnoRet": _EPERM,
        "architectures": list(ARCHITECTURES.get(machine, ())),
        "syscalls": [
            _rule(sorted(_names(capabilities, machine, kernel))),
            *(_rule(["personality"], _is(0, personality)) for personality in PERSONALITIES),
            # A vsock to the hypervisor bypasses every network policy.
            _rule(["socket"], {"index": 0, "value": AF_VSOCK, "op": "SCMP_CMP_NE"}),
            *([] if "CAP_SYS_ADMIN" in capabilities else _clone_rules(machine)),
        ],
    }


def _names(capabilities: Collection[str], machine: str, kernel: tuple[int, int]) -> set[str]:
    allowed = {
        name for name in _words(ALLOWED.values()) if kernel >= SINCE_KERNEL.get(name, kernel)
    }
    allowed.update(BY_MACHINE.get(machine, "").split())
    allowed.update(_words(names for name, names in BY_CAPABILITY.items() if name in capabilities))
    return allowed


def _clone_rules(machine: str) -> list[Document]:
    """Return rules that allow new processes and threads, but no new namespaces.

    A filter cannot inspect clone3's flags, which are in memory; on ENOSYS libraries fall back to
    clone.
    """
    index = _FIRST_ON_S390 if machine == "s390x" else 0
    return [
        _rule(
            ["clone"],
            {"index": index, "value": NEW_NAMESPACES, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"},
        ),
        {"names": ["clone3"], "action": _REFUSE, "errnoRet": _ENOSYS},
    ]


def _words(groups: Iterable[str]) -> Iterable[str]:
    for names in groups:
        yield from names.split()


def _is(index: int, value: int) -> dict[str, Any]:
    return {"index": index, "value": value, "op": "SCMP_CMP_EQ"}


def _rule(names: list[str], *arguments: dict[str, Any]) -> Document:
    rule: Document = {"names": names, "action": _ALLOW}
    if arguments:
        rule["args"] = list(arguments)
    return rule
