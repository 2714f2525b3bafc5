"""Container process: command, environment and working directory, and those of an exec.

Source: CRI ContainerConfig; OCI runtime-spec, "Process"; the Kubernetes table of `command` and
`args` against an image's entrypoint and command.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moorage.engine.errors import InvalidError
from moorage.engine.oci.context import HostFacts, ImageDefaults, Rlimit
from moorage.engine.oci.identity import Identity
from moorage.engine.oci.seccomp.profile import SecurityContext
from moorage.wire.cri import pb

# AppArmor profiles and SELinux labels of a process.
#
# Pure. Source: CRI LinuxContainerSecurityContext (`apparmor` comes before `apparmor_profile`);
# KEP-24; selinux(8), container-selinux for the types.

APP_ARMOR_PROFILES = Path("/sys/kernel/security/apparmor/profiles")
DEFAULT_APP_ARMOR = ("cri-moorage", "cri-containerd.apparmor.d", "crio-default", "docker-default")
"""The meaning of RuntimeDefault: the first of these that the node has loaded."""

_LOCALHOST = "localhost/"
_OLDER_DEFAULT = "runtime/default"
_OLDER_UNCONFINED = "unconfined"
_LEVEL = re.compile(r"^s[0-9]+(-s[0-9]+)?(:c[0-9]+([.,]c[0-9]+)*)?$")
_CATEGORIES = 1024

_UNCONFINED = pb.SecurityProfile.Unconfined
_RUNTIME_DEFAULT = pb.SecurityProfile.RuntimeDefault


@dataclass(frozen=True, slots=True)
class Labels:
    """SELinux labels of the process and of its files, "" without one."""

    process: str = ""
    mount: str = ""


NO_LABELS = Labels()


def parse_app_armor_profiles(text: str) -> frozenset[str]:
    """Return the names in the kernel's list of loaded profiles: `NAME (MODE)` each."""
    return frozenset(line.rpartition(" (")[0] for line in text.split("\n") if " (" in line)


def needs_app_armor_profiles(context: SecurityContext, host: HostFacts) -> bool:
    """Return whether the list of loaded profiles is needed."""
    return host.has_app_armor and not (context.privileged and _asked(context) is None)


def app_armor_profile(context: SecurityContext, host: HostFacts, loaded: Collection[str]) -> str:
    """Return the AppArmor profile's name, "" for none; by default RuntimeDefault if one is loaded.

    Raises InvalidError when the requested profile is not available.
    """
    requested = _asked(context)
    kind, name = requested or (_RUNTIME_DEFAULT, "")
    if kind == _UNCONFINED:
        return ""
    if not host.has_app_armor:
        if requested is None:
            return ""
        raise InvalidError(
            "apparmor is not supported: a profile is requested, but AppArmor is disabled; "
            "use Unconfined"
        )
    if kind == _RUNTIME_DEFAULT:
        if context.privileged:
            return ""
        name = next((profile for profile in DEFAULT_APP_ARMOR if profile in loaded), "")
        if not name and requested is not None:
            raise InvalidError(
                f"no default apparmor profile is loaded; load one as {DEFAULT_APP_ARMOR[0]!r}"
            )
        return name
    if name not in loaded:
        raise InvalidError(
            f"apparmor profile not found: {name!r}; load it on this node with apparmor_parser"
        )
    return name


def selinux_labels(
    own: SecurityContext, pods: pb.LinuxSandboxSecurityContext, sandbox_id: str, host: HostFacts
) -> Labels:
    """Return the labels of a container (or sandbox, given twice); a pod's containers share
    categories.

    Raises InvalidError for an invalid level.
    """
    if not host.has_selinux or own.privileged:
        return NO_LABELS
    selinux = own.selinux_options if own.HasField("selinux_options") else pods.selinux_options
    level = selinux.level or pods.selinux_options.level or _level_of(sandbox_id)
    if not _LEVEL.match(level):
        raise InvalidError(
            f"selinux_options.level {level!r} is not a level; use the form s0:c123,c456"
        )
    user, role = selinux.user or "system_u", selinux.role or "system_r"
    return Labels(
        process=f"{user}:{role}:{selinux.type or 'container_t'}:{level}",
        mount=f"{user}:object_r:container_file_t:{level}",
    )


def _level_of(sandbox_id: str) -> str:
    """Return two categories derived from the sandbox's id, which separate pods without a
    registry.
    """
    digest = int.from_bytes(hashlib.sha256(sandbox_id.encode()).digest()[:8], "big")
    first, rest = digest % _CATEGORIES, digest // _CATEGORIES
    # From the other categories: a pair has two different ones.
    second = (first + 1 + rest % (_CATEGORIES - 1)) % _CATEGORIES
    low, high = sorted((first, second))
    return f"s0:c{low},c{high}"


def _asked(context: SecurityContext) -> tuple[pb.SecurityProfile.ProfileType.ValueType, str] | None:
    """Return the requested type and, for a profile of the node's, its name; None without a
    request.
    """
    if context.HasField("apparmor"):
        reference = context.apparmor.localhost_ref
        return context.apparmor.profile_type, reference.removeprefix(_LOCALHOST)
    older = getattr(context, "apparmor_profile", "")
    if not older:
        return None
    if older == _OLDER_DEFAULT:
        return _RUNTIME_DEFAULT, ""
    if older == _OLDER_UNCONFINED:
        return _UNCONFINED, ""
    if not older.startswith(_LOCALHOST):
        raise InvalidError(
            f"apparmor_profile {older!r} is not supported; use runtime/default, unconfined or "
            "localhost/NAME"
        )
    return pb.SecurityProfile.Localhost, older.removeprefix(_LOCALHOST)


DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_TERMINAL_TYPE = "xterm"


def arguments(config: pb.ContainerConfig, image: ImageDefaults) -> list[str]:
    """Return the argv. The container's command drops both of the image's.

    Raises InvalidError when there is none.
    """
    if config.command:
        argv = [*config.command, *config.args]
    elif config.args:
        argv = [*image.entrypoint, *config.args]
    else:
        argv = [*image.entrypoint, *image.command]
    if not argv:
        raise InvalidError(
            f"no command specified: neither container {config.metadata.name!r} nor its image "
            "names one; set command"
        )
    return _checked(argv, "command and args")


def environment(config: pb.ContainerConfig, image: ImageDefaults, hostname: str) -> list[str]:
    """Return the environment as NAME=VALUE: the image's, then HOSTNAME, then the container's.

    A repeated name keeps its place and takes the later value. Raises InvalidError.
    """
    variables = {"PATH": DEFAULT_PATH}
    if config.tty:
        variables["TERM"] = _TERMINAL_TYPE
    for variable in image.env:
        name, _, value = variable.partition("=")
        variables[name] = value
    if hostname:
        variables["HOSTNAME"] = hostname
    for pair in config.envs:
        if not pair.key or "=" in pair.key:
            raise InvalidError(f"envs has the invalid name {pair.key!r}: empty or with =")
        variables[pair.key] = _text(pair.value, pair.key)
    return _checked([f"{name}={value}" for name, value in variables.items()], "envs")


def working_directory(config: pb.ContainerConfig, image: ImageDefaults) -> str:
    """Return the working directory, an absolute path; runtimes create it."""
    return posixpath.join("/", config.working_dir or image.working_dir)


def user_document(identity: Identity) -> dict[str, Any]:
    """Return the OCI `process.user`."""
    return {
        "uid": identity.uid,
        "gid": identity.gid,
        # Linux sorts them; a guest kernel shows them in this order.
        "additionalGids": sorted(identity.additional_gids),
    }


def rlimit_documents(limits: Iterable[Rlimit]) -> list[dict[str, Any]]:
    """Return the OCI `process.rlimits`."""
    return [{"type": limit.name, "soft": limit.soft, "hard": limit.hard} for limit in limits]


def exec_process(
    argv: Sequence[str], process: Mapping[str, Any], *, has_terminal: bool = False
) -> dict[str, Any]:
    """Return the OCI `process` of an exec, derived from the container's own.

    It has the same user, environment, directory, capabilities and limits. Raises InvalidError.
    """
    if not argv:
        raise InvalidError("cmd is empty; specify a command to run")
    document = {**process, "args": _checked(list(argv), "cmd"), "terminal": has_terminal}
    env = process.get("env", [])
    if has_terminal and not any(variable.startswith("TERM=") for variable in env):
        document["env"] = [*env, f"TERM={_TERMINAL_TYPE}"]
    return document


def _text(value: bytes | str, name: str) -> str:
    if isinstance(value, str):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise InvalidError(
            f"the value of env {name!r} is not UTF-8, as an OCI config.json must be"
        ) from None


def _checked(words: list[str], field: str) -> list[str]:
    if any("\0" in word for word in words):
        raise InvalidError(f"{field} contains a NUL character, which execve does not allow")
    return words
