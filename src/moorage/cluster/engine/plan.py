"""Engine plan: paths, network and options, decided from the host's facts before a start."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from moorage.api.logs import Log
from moorage.cluster.engine.paths import HUGETLB_MARKER, ClusterEnginePaths, engine_paths
from moorage.cluster.errors import ClusterError
from moorage.cluster.host import Inventory, gather
from moorage.cluster.host.hugetlb import mount_hugetlb_v1
from moorage.cluster.images import BUSYBOX, NGINX_STAND_IN
from moorage.cluster.layout import Layout
from moorage.cluster.network import PodNetwork, pod_network
from moorage.cluster.settings import Settings
from moorage.engine.images.manifest import ImageLimits
from moorage.engine.options import EngineOptions
from moorage.engine.requirements import HANDLER_DIRECTORY, NEEDED_PROGRAMS
from moorage.linux.cgroups import Cgroups

log = Log(__name__)


class NoEngineError(ClusterError):
    """An engine cannot run on this host; the text says what is missing and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePlan:
    """The paths, network and options of an engine, and the host's inventory behind them."""

    paths: ClusterEnginePaths
    host: Inventory
    network: PodNetwork
    options: EngineOptions


async def prepare_host(
    data_dir: Path,
    gather: Callable[[Path], Awaitable[Inventory]] = gather,
    mount: Callable[[Cgroups, Path], bool] = mount_hugetlb_v1,
) -> Inventory:
    """Prepare the host for a cluster that runs pods here; return its inventory.

    On a hybrid cgroup layout the hugetlb controller is moved to version 1, where crun needs it;
    teardown moves it back.
    """
    host = await gather(data_dir)
    try:
        has_moved = host.is_root and mount(host.cgroups, HUGETLB_MARKER)
    except OSError as error:
        # Another cluster that is starting may have moved it, so the host is read again.
        log.warning("hugetlb controller cannot be moved to cgroup version 1", reason=error)
        has_moved = True
    return await gather(data_dir) if has_moved else host


def plan_engine(layout: Layout, settings: Settings, host: Inventory) -> EnginePlan:
    """Return the plan for a cluster's engine on this host.

    Raises NoEngineError without root, a program that an engine needs, or the CNI plugins.
    """
    if not host.is_root:
        raise NoEngineError("a container engine needs root: run as root, or without a node")
    missing = [name for name in NEEDED_PROGRAMS if name not in host.tools]
    if missing:
        packages = " ".join(NEEDED_PROGRAMS[name] for name in missing)
        raise NoEngineError(
            f"{' and '.join(missing)} not found on PATH: apt-get install {packages}, or give a "
            "running engine with --cri"
        )
    if host.cni.directory is None:
        raise NoEngineError("there are no CNI plugins: apt-get install containernetworking-plugins")
    paths = engine_paths(layout, settings)
    return EnginePlan(
        paths=paths,
        host=host,
        network=pod_network(settings, paths.leases),
        options=EngineOptions(
            paths=paths.engine,
            socket=paths.socket,
            search_path=host.path,
            cni_programs=(host.cni.directory,),
            cni_configurations=paths.cni,
            handler_directories=(HANDLER_DIRECTORY,),
            registry_mirrors=settings.registry_mirrors,
            image_limits=ImageLimits(unpacked_bytes=settings.image_limit_bytes),
            # No registry has them: after garbage collection they could not be pulled again.
            pinned_images=frozenset({BUSYBOX, NGINX_STAND_IN}),
            host=host,
        ),
    )
