"""Endpoints of a cluster's engine, for commands that call it."""

from __future__ import annotations

from moorage.cli.errors import CliError
from moorage.cluster.engine import engine_paths
from moorage.cluster.layout import Layout
from moorage.cluster.settings import Settings


def endpoint_of(layout: Layout, settings: Settings) -> str:
    """Return the endpoint of the cluster's engine, its own or another. Raises CliError."""
    if not settings.has_node:
        raise CliError("this cluster has no node, and so no images: start it without --no-node")
    return settings.cri or engine_paths(layout, settings).endpoint


def own_endpoint_of(layout: Layout, settings: Settings) -> str:
    """Return the endpoint of the cluster's own engine. Raises CliError if it has none."""
    if settings.cri:
        raise CliError(
            "images are loaded into the cluster's own engine only; this cluster uses the one at "
            f"{settings.cri}"
        )
    return endpoint_of(layout, settings)
