"""Built-in seccomp profile, cached for each set of capabilities.

Pure. Source: OCI runtime-spec, "Seccomp"; clone(2), personality(2), vsock(7).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from moorage.engine.errors import InvalidError
from moorage.engine.oci.context import BUILT_IN_SECCOMP, UNCONFINED_SECCOMP, Document
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
from moorage.linux.trust import distrust
from moorage.wire.cri import pb

# Seccomp profile choice, from the CRI's two fields and the handler's default.
#
# Source: CRI LinuxContainerSecurityContext: `seccomp` takes precedence over the older
# `seccomp_profile_path`.

_LOCALHOST = "localhost/"
_OLDER_DEFAULTS = ("runtime/default", "docker/default")
_OLDER_UNCONFINED = ("", "unconfined")

SecurityContext = pb.LinuxContainerSecurityContext | pb.LinuxSandboxSecurityContext


@dataclass(frozen=True, slots=True)
class SeccompChoice:
    """A profile: the built-in one, the one of a file, or, with neither, none."""

    is_built_in: bool = False
    path: str = ""


NO_PROFILE = SeccompChoice()


def choose_seccomp(
    context: SecurityContext, handler_default: str, *, has_seccomp: bool
) -> SeccompChoice:
    """Return the profile of a container or sandbox; a privileged one has none. Raises
    InvalidError.
    """
    if context.privileged:
        return NO_PROFILE
    chosen = _asked(context, handler_default)
    if chosen != NO_PROFILE and not has_seccomp:
        raise InvalidError(
            "a seccomp profile is requested, but this kernel has no seccomp; use Unconfined"
        )
    return chosen


def _asked(context: SecurityContext, handler_default: str) -> SeccompChoice:
    if context.HasField("seccomp"):
        kind, reference = context.seccomp.profile_type, context.seccomp.localhost_ref
        if kind == pb.SecurityProfile.Localhost:
            return _of_file(reference, "seccomp.localhost_ref")
        is_default = kind == pb.SecurityProfile.RuntimeDefault
        return _default(handler_default) if is_default else NO_PROFILE
    older = context.seccomp_profile_path
    if older in _OLDER_UNCONFINED:
        return NO_PROFILE
    if older in _OLDER_DEFAULTS:
        return _default(handler_default)
    if not older.startswith(_LOCALHOST):
        raise InvalidError(
            f"seccomp_profile_path {older!r} is not supported; use runtime/default, unconfined or "
            "localhost/PATH"
        )
    return _of_file(older.removeprefix(_LOCALHOST), "seccomp_profile_path")


def _default(handler_default: str) -> SeccompChoice:
    if handler_default == BUILT_IN_SECCOMP:
        return SeccompChoice(is_built_in=True)
    if handler_default == UNCONFINED_SECCOMP:
        return NO_PROFILE
    return SeccompChoice(path=handler_default)


def _of_file(path: str, field: str) -> SeccompChoice:
    if not path.startswith("/"):
        raise InvalidError(f"{field} {path!r} must be an absolute path")
    return SeccompChoice(path=path)


# Seccomp profiles of the node's files: OCI's `linux.seccomp` as JSON.
#
# Source: CRI SecurityProfile.localhost_ref; OCI runtime-spec, "Seccomp".

_FIELDS = (
    "defaultAction",
    "defaultErrnoRet",
    "architectures",
    "flags",
    "listenerPath",
    "listenerMetadata",
    "syscalls",
)


def read_profile(path: str) -> Document:
    """Read a profile. Blocks. Raises InvalidError naming the file."""
    place = Path(path)
    if not place.is_absolute():
        raise InvalidError(f"seccomp profile {path!r} must be an absolute path")
    if "\0" in path:
        raise InvalidError(f"seccomp profile {path!r} is not a valid path: it contains NUL")
    distrusted = distrust(place)
    if distrusted is not None:
        raise InvalidError(f"refusing seccomp profile {path}: {distrusted}")
    try:
        content = place.read_bytes()
    except OSError as error:
        raise InvalidError(
            f"seccomp profile {path} cannot be read: {error.strerror}; install it on this node"
        ) from error
    try:
        profile = msgspec.json.decode(content, type=Document)
    except msgspec.MsgspecError as error:
        raise InvalidError(f"seccomp profile {path} is not a JSON object: {error}") from error
    if not isinstance(profile.get("defaultAction"), str):
        raise InvalidError(f"seccomp profile {path} has no defaultAction; add one")
    return {name: profile[name] for name in _FIELDS if name in profile}


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
