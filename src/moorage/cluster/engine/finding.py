"""Finding of the engine that a command means: the one that a cluster uses, or this machine's.

A cluster's own engine, then the engine that it was started with (`--cri`), then the only engine
whose usual socket is here.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from moorage.cluster.cluster import Cluster
from moorage.cluster.engine.target import Target, node_target
from moorage.runtimes.installing.downloads import RuntimeInstallationError
from moorage.runtimes.installing.engine import USUAL_SOCKETS, sockets_in


def find_target(cluster: Cluster, endpoint: str, sockets: Sequence[Path] = USUAL_SOCKETS) -> Target:
    """Return the engine that is meant. `endpoint` is the user's choice, empty without one.

    Raises RuntimeInstallationError if there is none, or several; NotRunningError.
    """
    if endpoint:
        return Target(endpoint=endpoint, layout=cluster.layout)
    if cluster.find_settings() is not None:
        settings = cluster.running_settings()
        if not settings.cri and not settings.has_node:
            raise RuntimeInstallationError(
                "the cluster has no node on this machine: name its engine with --cri"
            )
        return node_target(cluster.layout, settings)
    present = sockets_in(sockets)
    if len(present) != 1:
        listed = ", ".join(map(str, present)) or "no engine's socket is here"
        raise RuntimeInstallationError(
            f"there is no cluster in {cluster.directory}, and it is not clear which engine is "
            f"meant ({listed}): name it with --cri unix:///path"
        )
    return Target(endpoint=f"unix://{present[0]}", layout=cluster.layout)
