"""Host paths of the runtime agent: whether its container can have all that the values ask for.

Each directory is mounted at its own path, so one that is there twice, or that hides what the
container has of its own, is refused here with its value's name rather than by the API server or
the engine. Source: core/v1 `VolumeMount.mountPath`, `HostPathVolumeSource.path`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from moorage.cluster.attach.manifests.runtime_agent import (
    DATA_DIRECTORY,
    ENGINE_CONFIGURATIONS,
    SOCKETS,
    TEMPORARY,
)
from moorage.cluster.attach.values import AgentValues

_OWN = ("/", "/bin", "/dev", "/lib", "/lib64", "/proc", "/sbin", "/sys", "/usr")
"""Directories of the image, or of the kernel, without which the agent cannot run."""


def path_problems(agent: AgentValues) -> Iterator[str]:
    """Yield what is wrong with the directories, in a sentence that names the value."""
    taken = {TEMPORARY: "the agent has its own", DATA_DIRECTORY: "the agent has it anyway"}
    if agent.installs_runtimes:
        taken |= dict.fromkeys(ENGINE_CONFIGURATIONS, "the agent has it anyway")
    sockets = SOCKETS
    if agent.cri:
        sockets = _normalized(str(PurePosixPath(agent.cri.removeprefix("unix://")).parent))
        if problem := _problem(sockets, taken):
            yield f"agent.cri: the socket's directory {sockets} cannot be mounted: {problem}"
    for path in agent.host_paths:
        normalized = _normalized(path)
        if normalized == sockets:
            # The socket's directory may hold an engine's configuration too.
            continue
        if problem := _problem(normalized, taken):
            yield f"agent.hostPaths: {path}: {problem}"
        taken[normalized] = "it is there twice"


def _normalized(path: str) -> str:
    return "/" + str(PurePosixPath(path)).lstrip("/")


def _problem(path: str, taken: dict[str, str]) -> str:
    if path in taken:
        return taken[path]
    if path in _OWN:
        return "it would hide the agent's own files; name a directory below it"
    if ".." in path.split("/") or ":" in path:
        return 'a path that is mounted has no ".." and no ":"'
    return ""
