"""Teardown of a cluster: its supervisor, its pods, and what it has on the machine."""

from __future__ import annotations

import os
import select
import signal

from moorage.cluster.engine import (
    NoEngineError,
    cgroup_root,
    end_pods,
    engine_in_use,
    engine_paths,
    note_engine,
    plan_engine,
    pod_network,
    prepare_host,
    sweep,
    tear_down,
)
from moorage.cluster.engine.sweep import remove_cgroups, remove_mounts
from moorage.cluster.host import gather
from moorage.cluster.layout import Layout
from moorage.cluster.network import unprotect
from moorage.cluster.settings import Settings
from moorage.cluster.supervisor import running_pid
from moorage.linux.cgroups import current_cgroups

_STOP_S = 90.0


class StopError(Exception):
    """The supervisor does not end."""


def stop_parts(layout: Layout) -> bool:
    """End the running supervisor and its parts; pods go on. False when none ran.

    Raises StopError when it does not end.
    """
    pid = running_pid(layout)
    if pid is None:
        return False
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        signal.pidfd_send_signal(descriptor, signal.SIGTERM)
        ended, _, _ = select.select([descriptor], [], [], _STOP_S)
    finally:
        os.close(descriptor)
    if not ended:
        raise StopError(f"the supervisor (process {pid}) does not end after {_STOP_S:g} s")
    return True


async def clear_machine(layout: Layout, settings: Settings, *, abandons_pods: bool = False) -> None:
    """Stop every pod of the cluster and take what it has on the machine away; data stays.

    Pods are where they were left, whatever the settings say since. `abandons_pods` leaves those on
    an engine of others to it. Raises LeftoverError when something stays.
    """
    used = engine_in_use(layout, settings)
    if used and not abandons_pods:
        await end_pods(used, layout, settings)
    if not settings.has_node or settings.cri:
        network = pod_network(settings, engine_paths(layout, settings))
        await unprotect(network, await gather(layout.root))
    is_own = settings.has_node and not settings.cri
    if is_own or used == "" or engine_paths(layout, settings).run.is_dir():
        await _clear_own_engine(layout, settings)
    remove_mounts(layout.node)
    remove_cgroups([cgroup_root(settings)], current_cgroups())
    note_engine(layout, None)


async def _clear_own_engine(layout: Layout, settings: Settings) -> None:
    host = await prepare_host(layout.root)
    paths = engine_paths(layout, settings)
    network = pod_network(settings, paths)
    try:
        plan = plan_engine(layout, settings, host)
    except NoEngineError:
        # What an engine needs was taken off the machine while the cluster was down.
        await sweep(paths, host, network, frozenset({cgroup_root(settings)}))
    else:
        await tear_down(plan, cgroup_root=cgroup_root(settings))
