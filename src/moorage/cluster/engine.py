"""What a cluster's own engine and its pods use on the machine, derived from the settings."""

from __future__ import annotations

from ipaddress import IPv4Network

from moorage.cluster.containerd.paths import EnginePaths
from moorage.cluster.layout import Layout
from moorage.cluster.network import PodNetwork, host_routes, outward_mtu
from moorage.cluster.settings import Settings


def engine_paths(layout: Layout, settings: Settings) -> EnginePaths:
    return EnginePaths.of(settings.cluster_id, layout.engine, layout.log("engine"))


def pod_network(settings: Settings, paths: EnginePaths) -> PodNetwork:
    return PodNetwork(
        cluster_id=settings.cluster_id,
        subnet=IPv4Network(settings.pod_network),
        leases=paths.leases,
        mtu=outward_mtu(host_routes()),
    )


def cgroup_root(settings: Settings) -> str:
    """The cgroup below which the node agent keeps its pods."""
    return f"/moorage-{settings.cluster_id}"
