"""Host paths of the runtime agent: whether its container can have all that the values ask for.

Each directory is mounted at its own path, so one that is there twice, or that hides what the
container has of its own, is refused here with its value's name rather than by the API server or
the engine. Source: core/v1 `VolumeMount.mountPath`, `HostPathVolumeSource.path`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from moorage.api.meta import Raw
from moorage.attach.manifests.runtime_agent import (
    DATA_DIRECTORY,
    ENGINE_CONFIGURATIONS,
    SOCKETS,
    TEMPORARY,
)
from moorage.attach.values import AgentValues

_OWN = ("/", "/bin", "/dev", "/lib", "/lib64", "/proc", "/sbin", "/sys", "/usr")
"""Directories of the image, or of the kernel, without which the agent cannot run."""
_SLASHES = r"/(\.?/)*"
_END = r"(/\.?)*$"


def path_problems(agent: AgentValues) -> Iterator[str]:
    """Yield errors of the directories, in a sentence that names the value."""
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


def path_schemas() -> tuple[Raw, Raw, Raw]:
    """Return the rules of `path_problems` as JSON schemas: for `cri`, for an item of `hostPaths`,
    and for the `agent` as a whole.

    Helm has no other validation. A directory that is there twice in two spellings is not found.
    Expressions are those of RE2: without lookahead.
    """
    own = _spellings((*_OWN, TEMPORARY, DATA_DIRECTORY))
    configurations = _spellings(ENGINE_CONFIGURATIONS)
    socket = rf"{_SLASHES}[^/]+{_END}"
    cri = rf"^unix://(({own}){socket}|.*/\.\.(/|$)|.*:.*/)"
    item = rf"(^({own}){_END}|/\.\.(/|$)|:)"
    installs = {
        "cri": _refuse(rf"^unix://({configurations}){socket}"),
        "hostPaths": {"items": _refuse(rf"^({configurations}){_END}")},
    }
    agent = {
        "if": {"properties": {"installsRuntimes": {"const": True}}},
        "then": {"properties": installs},
    }
    return _refuse(cri), _refuse(item), agent


def _refuse(pattern: str) -> Raw:
    return {"not": {"pattern": pattern}}


def _spellings(paths: Iterable[str]) -> str:
    """Return an expression for paths with any number of slashes and `.` in them, without the end
    of one.
    """
    spelled = (
        "".join(_SLASHES + re.escape(part) for part in path.split("/") if part) for path in paths
    )
    return "|".join(spelled)


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
