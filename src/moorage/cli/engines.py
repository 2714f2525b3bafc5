"""Endpoints of a cluster's engine, for commands that call it."""

from __future__ import annotations

from moorage.cli.errors import CliError
from moorage.cluster import Cluster
from moorage.cluster.engine import engine_paths


def endpoint_of(cluster: Cluster) -> str:
    """Return the endpoint of a running cluster's engine, its own or another.

    Raises NotRunningError, and CliError for a cluster without a node.
    """
    settings = cluster.running_settings()
    if not settings.has_node:
        raise CliError("this cluster has no node, and so no images: start it without --no-node")
    return settings.cri or engine_paths(cluster.layout, settings).endpoint


def own_endpoint_of(cluster: Cluster) -> str:
    """Return the endpoint of a running cluster's own engine.

    Raises NotRunningError, and CliError if it has none.
    """
    endpoint = cluster.running_settings().cri
    if endpoint:
        raise CliError(
            "images are loaded into the cluster's own engine only; this cluster uses the one at "
            f"{endpoint}"
        )
    return endpoint_of(cluster)
