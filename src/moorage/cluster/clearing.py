"""Clearing of the host: the cluster's pods, their network, mounts and cgroups; its data stays.

Pods are stopped by an engine, which reaps every child of its process. So that it reaps none of a
program that uses `Cluster`, it runs in a process of its own: `python -m moorage.cluster.clearing`.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine
from enum import StrEnum
from pathlib import Path
from typing import Any

from moorage.api.logs import configure
from moorage.cluster.engine.external import end_pods
from moorage.cluster.engine.paths import cgroup_root, engine_paths
from moorage.cluster.engine.plan import NoEngineError, plan_engine, prepare_host
from moorage.cluster.engine.sweep import remove_cgroups, remove_mounts
from moorage.cluster.engine.teardown import sweep, tear_down
from moorage.cluster.engine.usage import engine_in_use, note_engine
from moorage.cluster.errors import ClusterError
from moorage.cluster.host import gather
from moorage.cluster.layout import Layout
from moorage.cluster.network import pod_network, unprotect
from moorage.cluster.settings import Settings, SettingsError, load
from moorage.linux.cgroups import current_cgroups
from moorage.linux.command import CommandError

_ABANDON_PODS = "--abandon-pods"


async def clear_host(layout: Layout, settings: Settings, *, abandons_pods: bool = False) -> None:
    """Stop every pod of the cluster and remove what it has on the host; its data stays.

    Pods are stopped on the engine that they were started on, whatever the settings are now. With
    `abandons_pods`, pods on an engine given with --cri are left to it.

    Raises LeftoverError if something stays, CommandError if the network cannot be removed.
    """
    used = engine_in_use(layout, settings)
    paths = engine_paths(layout, settings)
    steps = steps_of(used, settings, abandons_pods=abandons_pods, has_run=paths.run.is_dir())
    if used and Step.END_PODS in steps:
        await end_pods(used, layout, settings)
    if Step.UNPROTECT in steps:
        await unprotect(pod_network(settings, paths.leases), await gather(layout.root))
    if Step.OWN_ENGINE in steps:
        await _clear_own_engine(layout, settings)
    remove_mounts(layout.node)
    remove_cgroups([cgroup_root(settings)], current_cgroups())
    note_engine(layout, None)


class Step(StrEnum):
    """What is cleared, in this order, before mounts and cgroups."""

    END_PODS = "pods on an external engine"
    UNPROTECT = "the API server's own rules"
    OWN_ENGINE = "what the cluster's own engine has"


def steps_of(
    used: str | None, settings: Settings, *, abandons_pods: bool, has_run: bool
) -> frozenset[Step]:
    """Return what is to be cleared.

    `used` is the engine on which pods may be, "" the cluster's own; `has_run`: the own engine's
    directory exists, as an earlier version left it.
    """
    is_own = settings.has_node and not settings.cri
    wanted = {
        Step.END_PODS: bool(used) and not abandons_pods,
        Step.UNPROTECT: not is_own,
        Step.OWN_ENGINE: is_own or used == "" or has_run,
    }
    return frozenset(step for step, is_wanted in wanted.items() if is_wanted)


async def _clear_own_engine(layout: Layout, settings: Settings) -> None:
    host = await prepare_host(layout.root)
    paths = engine_paths(layout, settings)
    network = pod_network(settings, paths.leases)
    try:
        plan = plan_engine(layout, settings, host)
    except NoEngineError:
        # For example, a program that an engine needs was removed while the cluster was down.
        await sweep(paths, host, network, frozenset({cgroup_root(settings)}))
    else:
        await tear_down(plan, cgroup_root=cgroup_root(settings))


def main(
    argv: list[str],
    clear: Callable[..., Coroutine[Any, Any, None]] = clear_host,
    configure: Callable[[str], None] = configure,
) -> int:
    """Clear the host of the cluster in the directory `argv[0]`. Return the exit status.

    Prints the reason of a failure to standard output, and logs to standard error.
    """
    configure("warning")
    layout = Layout(Path(argv[0]))
    try:
        settings = load(layout.settings)
        if settings is None:
            raise SettingsError(f"{layout.settings}: no such file")
        asyncio.run(clear(layout, settings, abandons_pods=_ABANDON_PODS in argv))
    except (ClusterError, CommandError) as error:
        print(error)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
