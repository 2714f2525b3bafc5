"""Container process: command, environment and working directory, and those of an exec.

Source: CRI ContainerConfig; OCI runtime-spec, "Process"; the Kubernetes table of `command` and
`args` against an image's entrypoint and command.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from moorage.engine.errors import InvalidError
from moorage.engine.oci.context import ImageDefaults, Rlimit
from moorage.engine.oci.identity import Identity
from moorage.wire.cri import pb

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
