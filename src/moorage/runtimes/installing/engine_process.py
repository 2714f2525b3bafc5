"""Process of an engine: its configuration files, and the command that restarts it.

Both are read from the process that listens on the CRI socket, so that no path is guessed: its
command line, its environment and its cgroup. Source: containerd(8), crio(8), systemd's cgroups.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from moorage.linux.process import Identity, began
from moorage.runtimes.installing.errors import RuntimeInstallationError
from moorage.wire.engine_ports import engine_process

CONTAINERD, CRIO = "containerd", "cri-o"
_UNIT = re.compile(r"/(?P<unit>[^/\n]+\.service)$", re.MULTILINE)
_MOST_BYTES = 1024 * 1024


class EngineOption(msgspec.Struct, frozen=True):
    """An option with a path: its names on a command line, its variable, and its default."""

    names: tuple[str, ...]
    variable: str
    default: Path


_OPTIONS: Mapping[str, Mapping[str, EngineOption]] = {
    CONTAINERD: {"main": EngineOption(("--config", "-c"), "", Path("/etc/containerd/config.toml"))},
    CRIO: {
        "main": EngineOption(
            ("--config", "-c"), "CONTAINER_CONFIG", Path("/etc/crio/crio.conf")
        ),
        "directory": EngineOption(
            ("--config-dir", "-d"), "CONTAINER_CONFIG_DIR", Path("/etc/crio/crio.conf.d")
        ),
    },
}  # fmt: skip


class EngineProcess(msgspec.Struct, frozen=True):
    """A running engine: `paths` are its configuration's, `unit` its systemd service or empty."""

    identity: Identity
    paths: Mapping[str, Path]
    unit: str

    @property
    def directory(self) -> Path:
        """Its directory in /proc."""
        return Path(f"/proc/{self.identity.pid}")

    @property
    def directories(self) -> tuple[Path, ...]:
        """The directories in which its configuration is changed, by their names for options."""
        return tuple(
            path if name == "directory" else path.parent for name, path in self.paths.items()
        )


def find_process(endpoint: str, engine: str) -> EngineProcess:
    """Return the process of an engine of that name. Blocks. Raises RuntimeInstallationError."""
    if engine not in _OPTIONS:
        raise RuntimeInstallationError(
            f"the engine {engine} is not known here: containerd and CRI-O are; add the handler to "
            "its configuration by hand"
        )
    identity = identity_of(endpoint)
    if identity is None:
        raise RuntimeInstallationError(
            f"the process of {engine} at {endpoint} is not found: it must listen there itself, and "
            "on this machine; an agent in a container needs hostPID to see it"
        )
    process = Path(f"/proc/{identity.pid}")
    try:
        words = _words(process / "cmdline")
        variables = dict(word.partition("=")[::2] for word in _words(process / "environ"))
        directory = (process / "cwd").readlink()
        # Source: sd_booted(3).
        has_systemd = (process / "root/run/systemd/system").is_dir()
        unit = unit_of((process / "cgroup").read_text()) if has_systemd else ""
    except OSError as error:
        raise RuntimeInstallationError(
            f"the process of {engine} ({identity.pid}) cannot be read: {error}; run as "
            "root, in a container with the capability SYS_PTRACE"
        ) from error
    paths = {
        name: directory / path_of(words[1:], variables, option)
        for name, option in _OPTIONS[engine].items()
    }
    return EngineProcess(identity, paths, unit)


def identity_of(endpoint: str) -> Identity | None:
    """Return the process that listens on a CRI socket, None without one. Blocks."""
    pid = engine_process(endpoint)
    ticks = None if pid is None else began(pid)
    return None if pid is None or ticks is None else Identity(pid, ticks)


def is_in_own_cgroup(endpoint: str) -> bool:
    """Return whether an engine is in the cgroups of this process. Blocks. Raises OSError."""
    identity = identity_of(endpoint)
    if identity is None:
        return False
    own, engine = (
        Path(f"/proc/{process}/cgroup").read_text() for process in ("self", identity.pid)
    )
    return own == engine


def path_of(words: Sequence[str], variables: Mapping[str, str], option: EngineOption) -> Path:
    """Return the path that a command line, or else the environment, gives to an option."""
    for number, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name in option.names:
            if equals:
                return Path(value)
            if number + 1 < len(words):
                return Path(words[number + 1])
    return Path(variables.get(option.variable) or option.default)


def unit_of(cgroups: str) -> str:
    """Return the systemd service of a process by its /proc/PID/cgroup, empty without one."""
    match = _UNIT.search(cgroups)
    return match["unit"] if match else ""


def _words(path: Path) -> list[str]:
    with path.open("rb") as file:
        content = file.read(_MOST_BYTES)
    return [word.decode(errors="surrogateescape") for word in content.split(b"\0") if word]
