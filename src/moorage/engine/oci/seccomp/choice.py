"""Seccomp profile choice, from the CRI's two fields and the handler's default.

Source: CRI LinuxContainerSecurityContext: `seccomp` takes precedence over the older
`seccomp_profile_path`.
"""

from __future__ import annotations

from dataclasses import dataclass

from moorage.engine.errors import InvalidError
from moorage.engine.oci.context import BUILT_IN_SECCOMP, UNCONFINED_SECCOMP
from moorage.wire.cri import pb

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
