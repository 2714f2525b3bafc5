"""Data removal: a runtime agent's directory goes before the agent does, when all is detached.

The agent mounts the directory, so the last step, its entry in the host's own tree, is taken in the
host's mount namespace, where the directory is no mount point.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from moorage.api.logs import Log
from moorage.cluster.layout import Layout
from moorage.cluster.runtimes.host_access import HostAccess, find_access
from moorage.cluster.standalone.health import HEALTH_ADDRESS, serve_health
from moorage.linux.command import CommandError, must_run
from moorage.linux.trees import remove_tree

_DEADLINE_S = 10.0

log = Log(__name__)


async def run(data_dir: Path, health_port: int, ready: Callable[[], None]) -> None:
    """Remove what there is, then call `ready` and answer `/readyz` on a port until cancelled.

    It stays because a pod that ends is started again, and so that the pod counts as ready only
    when all is removed. Raises OSError.
    """
    left = await asyncio.to_thread(remove_data, data_dir)
    for path in left:
        log.warning("runtimes that are installed stay", path=path)
    if not left:
        await remove_directory(data_dir, await asyncio.to_thread(find_access))
    ready()
    await serve_health(HEALTH_ADDRESS, health_port, tuple)


def remove_data(data_dir: Path) -> list[Path]:
    """Remove the content of an agent's directory; return what stays. Blocks. Raises OSError.

    Runtimes stay where a version is installed, which RuntimeInstallations with the policy Retain
    leave: pods may run under it.
    """
    runtimes = Layout(data_dir).runtimes
    left = [runtimes] if _has_versions(runtimes) else []
    if data_dir.is_dir():
        for entry in data_dir.iterdir():
            if entry not in left:
                remove_tree(entry)
    return left


def _has_versions(runtimes: Path) -> bool:
    """Whether a handler has a directory there; records and journals have hidden ones."""
    return runtimes.is_dir() and any(not one.name.startswith(".") for one in runtimes.iterdir())


async def remove_directory(data_dir: Path, host: HostAccess) -> None:
    """Remove the empty directory itself, as far as the agent's capabilities allow."""
    try:
        await must_run([*host.command, "rmdir", "--", str(data_dir)], deadline_s=_DEADLINE_S)
    except CommandError as error:
        log.warning("empty directory stays", path=data_dir, reason=error)
