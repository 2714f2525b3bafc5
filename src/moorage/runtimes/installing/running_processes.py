"""Running processes of an engine's pods, before and after it was restarted.

An engine reports the process of each sandbox and container in their verbose status; with its start
time it identifies a process. Source: containerd internal/cri/server, CRI-O server: `info["info"]`.
"""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from moorage.api.runtime_group import PROBE_LABEL
from moorage.linux.process import Identity, began, state
from moorage.runtimes.installing.downloads import RuntimeInstallationError
from moorage.wire.cri import CriClient, CriError, pb
from moorage.wire.engine_ports import engine_process

# Process of an engine: its configuration files, and the command that restarts it.
#
# Both are read from the process that listens on the CRI socket, so that no path is guessed: its
# command line, its environment and its cgroup. Source: containerd(8), crio(8), systemd's cgroups.

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


_WELL = (0, 128 + signal.SIGTERM)


class PodProcess(msgspec.Struct, frozen=True):
    """The process of a container, or of a sandbox, which is then its own `sandbox`."""

    name: str
    is_sandbox: bool
    identity: Identity
    sandbox: str = ""


class _Info(msgspec.Struct, frozen=True):
    pid: int = 0


async def running_processes(cri: CriClient) -> dict[str, PodProcess]:
    """Return the processes of the running sandboxes and containers by their IDs. Raises CriError.

    Those whose engine does not report a process, or that end meanwhile, are left out, and so are
    probes, which others end at any time.
    """
    processes: dict[str, PodProcess] = {}
    sandboxes = await cri.call(cri.runtime.ListPodSandbox, pb.ListPodSandboxRequest())
    probes = {sandbox.id for sandbox in sandboxes.items if PROBE_LABEL in sandbox.labels}
    for sandbox in sandboxes.items:
        if sandbox.state == pb.SANDBOX_READY and sandbox.id not in probes:
            name = f"sandbox of {sandbox.metadata.namespace}/{sandbox.metadata.name}"
            asked = pb.PodSandboxStatusRequest(pod_sandbox_id=sandbox.id, verbose=True)
            info = await _info(cri, cri.runtime.PodSandboxStatus, asked)
            _add(processes, sandbox.id, name, info, sandbox.id)
    containers = await cri.call(cri.runtime.ListContainers, pb.ListContainersRequest())
    for container in containers.containers:
        is_probe = container.pod_sandbox_id in probes
        if container.state == pb.CONTAINER_RUNNING and not is_probe:
            name = f"container {container.metadata.name} ({container.id[:12]})"
            inquiry = pb.ContainerStatusRequest(container_id=container.id, verbose=True)
            info = await _info(cri, cri.runtime.ContainerStatus, inquiry)
            _add(processes, container.id, name, info, container.pod_sandbox_id)
    return processes


async def find_disturbed(cri: CriClient, before: Mapping[str, PodProcess]) -> list[str]:
    """Return a sentence for each process that did not survive, or whose engine lost it.

    A container that ended by itself with status 0, or by the SIGTERM of who stopped it, or that
    another client removed, is none; nor is a sandbox that ended with all its containers so: pods
    complete and are deleted at any time. Raises CriError.
    """
    containers = {id_: process for id_, process in before.items() if not process.is_sandbox}
    sentences = {
        id_: sentence
        for id_, process in containers.items()
        if (sentence := await _find_container_problem(cri, id_, process))
    }
    running = {process.sandbox for id_, process in containers.items() if id_ in sentences}
    for id_, process in containers.items():
        if id_ not in sentences and await asyncio.to_thread(_is_alive, process.identity):
            running.add(process.sandbox)
    for id_, process in before.items():
        if process.is_sandbox and (
            sentence := await _find_sandbox_problem(cri, id_, process, is_used=id_ in running)
        ):
            sentences[id_] = sentence
    return [sentences[id_] for id_ in before if id_ in sentences]


async def _find_container_problem(cri: CriClient, id_: str, process: PodProcess) -> str:
    is_alive = await asyncio.to_thread(_is_alive, process.identity)
    request = pb.ContainerStatusRequest(container_id=id_)
    try:
        status = (await cri.call(cri.runtime.ContainerStatus, request)).status
    except CriError as error:
        return _lost(error, process, is_alive=is_alive)
    if status.state == pb.CONTAINER_EXITED and status.exit_code in _WELL:
        return ""
    return _problem(process, is_alive=is_alive, is_known=status.state == pb.CONTAINER_RUNNING)


async def _find_sandbox_problem(
    cri: CriClient, id_: str, process: PodProcess, *, is_used: bool
) -> str:
    """`is_used` is whether a container in it runs, or did not end well."""
    is_alive = await asyncio.to_thread(_is_alive, process.identity)
    request = pb.PodSandboxStatusRequest(pod_sandbox_id=id_)
    try:
        status = (await cri.call(cri.runtime.PodSandboxStatus, request)).status
    except CriError as error:
        return _lost(error, process, is_alive=is_alive)
    if not is_alive and not is_used:
        return ""
    return _problem(process, is_alive=is_alive, is_known=status.state == pb.SANDBOX_READY)


def _lost(error: CriError, process: PodProcess, *, is_alive: bool) -> str:
    if not error.is_not_found:
        raise error
    return f"the engine lost {process.name}" if is_alive else ""


def _problem(process: PodProcess, *, is_alive: bool, is_known: bool) -> str:
    if not is_alive:
        return f"{process.name} ended"
    return "" if is_known else f"the engine takes {process.name} for ended"


def _is_alive(identity: Identity) -> bool:
    return began(identity.pid) == identity.began_ticks and state(identity.pid) != "Z"


async def _info(cri: CriClient, status: Any, request: Any) -> Mapping[str, str]:
    """Return the verbose information of a status call, nothing for what is gone."""
    try:
        info: Mapping[str, str] = (await cri.call(status, request)).info
    except CriError as error:
        if error.is_not_found:
            return {}
        raise
    return info


def _add(
    processes: dict[str, PodProcess],
    id_: str,
    name: str,
    info: Mapping[str, str],
    sandbox: str,
) -> None:
    try:
        pid = msgspec.json.decode(info.get("info", "{}"), type=_Info).pid
    except (msgspec.DecodeError, msgspec.ValidationError):
        return
    ticks = began(pid) if pid > 0 else None
    if ticks is not None:
        processes[id_] = PodProcess(name, id_ == sandbox, Identity(pid, ticks), sandbox)
