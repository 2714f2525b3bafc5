"""Data removal: a runtime agent's directories go before the agent does, when all is detached.

The agent mounts its directory, and those of the engines' configurations, so their entries in the
host's own tree are removed through a process of the host, for which they are no mount points.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path

import msgspec

from moorage.api.clock import Clock, SystemClock
from moorage.api.logs import Log
from moorage.attach.processes.health import HEALTH_ADDRESS, serve_health
from moorage.attach.processes.runtime_agent import NoEngineError, find_endpoint
from moorage.cluster.errors import ClusterError
from moorage.cluster.layout import Layout
from moorage.linux.trees import remove_tree
from moorage.runtimes.installing.host_access import find_access
from moorage.runtimes.installing.host_entry import HostEntry, open_entry
from moorage.runtimes.installing.journal import MadeDirectories

_RETRY_S = 5.0
_LINK_OR_MOUNT = (errno.ENOTDIR, errno.EBUSY)

log = Log(__name__)


class RemovalOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What is removed: the agent's directory, through the engine at an endpoint, empty to find it.

    `enters_host` is whether the agent has the capabilities for that; otherwise the directory stays,
    empty.
    """

    data_dir: Path
    cri: str
    enters_host: bool
    health_port: int


async def run(
    options: RemovalOptions, ready: Callable[[], None], clock: Clock | None = None
) -> None:
    """Remove what there is, then call `ready` and answer `/readyz` on a port until cancelled.

    It stays because a pod that ends is started again, and so that the pod counts as ready only
    when all is removed: what cannot be is tried again, and logged. Raises OSError if the port is in
    use.
    """
    clock = clock or SystemClock()
    known = ""
    while problem := await asyncio.to_thread(_remove, options):
        if problem != known:
            log.warning("directories stay for now", reason=problem)
        known = problem
        await clock.sleep(_RETRY_S)
    ready()
    await serve_health(HEALTH_ADDRESS, options.health_port, tuple)


def _remove(options: RemovalOptions) -> str:
    """Remove all files; return the obstacle, empty without one. Blocks."""
    data_dir = options.data_dir
    try:
        if not options.enters_host:
            _report_left(remove_data(data_dir))
            return ""
        with closing(_open_host(options)) as host:
            # Before the agent's directory, which has their record.
            MadeDirectories(Layout(data_dir).runtimes).remove_empty(host.path)
            left = remove_data(data_dir)
            _report_left(left)
            if not left:
                _remove_empty(data_dir, host.path(data_dir))
    except (ClusterError, OSError) as error:
        return str(error)
    return ""


def _open_host(options: RemovalOptions) -> HostEntry:
    if not find_access().is_contained:
        return HostEntry()
    try:
        endpoint = find_endpoint(options.cri)
    except NoEngineError as error:
        log.debug("host is entered without an engine", reason=error)
        endpoint = ""
    return open_entry(endpoint, options.data_dir)


def _remove_empty(data_dir: Path, path: Path) -> None:
    """Remove an agent's directory by its path for this program, unless it is none on the host."""
    try:
        path.rmdir()
    except OSError as error:
        if error.errno == errno.ENOENT:
            # An agent that did this was started again.
            return
        if error.errno not in _LINK_OR_MOUNT:
            raise
        log.warning("a link or a mount of the host stays, empty", path=data_dir)


def _report_left(left: Iterable[Path]) -> None:
    for path in left:
        log.warning("what an agent does not remove stays", path=path)


def remove_data(data_dir: Path) -> list[Path]:
    """Remove what an agent made in its directory; return what stays. Blocks.

    Runtimes stay where a version is installed, which RuntimeInstallations with the policy Retain
    leave: pods may run under it. What no agent made stays too. Raises ClusterError for the
    directory of a cluster of `moor up`, OSError.
    """
    layout = Layout(data_dir)
    if layout.settings.exists():
        raise ClusterError(
            f"{data_dir} is the directory of a cluster, not of a runtime agent: nothing is removed"
        )
    made = {layout.images, layout.node, layout.root / "probes", layout.runtimes}
    if _has_versions(layout.runtimes):
        made.remove(layout.runtimes)
    left = []
    if data_dir.is_dir():
        for entry in data_dir.iterdir():
            if entry in made:
                remove_tree(entry)
            else:
                left.append(entry)
    return left


def _has_versions(runtimes: Path) -> bool:
    """Whether a handler has a directory there; records and journals have hidden ones."""
    return runtimes.is_dir() and any(not one.name.startswith(".") for one in runtimes.iterdir())
