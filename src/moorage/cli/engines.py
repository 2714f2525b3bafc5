"""Endpoints of a cluster's engine, for commands that call it."""

from __future__ import annotations

from moorage.cli.errors import CliError
from moorage.cluster import Cluster, Settings
from moorage.cluster.engine.paths import engine_paths


def endpoint_of(cluster: Cluster, settings: Settings) -> str:
    """Return the endpoint of a cluster's engine, its own or an external one.

    Raises CliError for a cluster without a node.
    """
    if not settings.has_node:
        raise CliError("this cluster has no node, and so no images: start it without --no-node")
    return settings.cri or engine_paths(cluster.layout, settings).endpoint


def own_endpoint_of(cluster: Cluster, settings: Settings) -> str:
    """Return the endpoint of a cluster's own engine.

    Raises CliError for a cluster with an external engine or without a node.
    """
    if settings.cri:
        raise CliError(
            "images are loaded into the cluster's own engine only; this cluster uses the one at "
            f"{settings.cri}"
        )
    return endpoint_of(cluster, settings)
