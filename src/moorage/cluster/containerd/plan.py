"""What a private engine will be: decided from the host's facts before anything is started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from moorage.api.logs import Log
from moorage.cluster.containerd.paths import HUGETLB_MARKER, EnginePaths
from moorage.cluster.host import Host, gather
from moorage.cluster.host.hugetlb import join_hugetlb
from moorage.cluster.images import PAUSE
from moorage.cluster.network import PodNetwork
from moorage.cri.containerd import (
    NATIVE,
    OVERLAYFS,
    Configuration,
    hosts_files,
    write_configuration,
)
from moorage.handlers import (
    Containerd,
    Handler,
    default_handler,
    discover,
    find_containerd,
    runtime_tables,
)

# systemd's unit for containerd has the same.
_ENGINE_OOM_SCORE = -999

log = Log(__name__)


class NoEngineError(Exception):
    """A private engine cannot run here; the text says what is missing and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePlan:
    """A private containerd: its files by path, and what it is started with.

    `handlers` are all of this machine, the unavailable ones with their reasons.
    """

    paths: EnginePaths
    host: Host
    network: PodNetwork
    containerd: Containerd
    handlers: tuple[Handler, ...]
    configuration: Configuration
    text: str
    registries: Mapping[str, str] = field(default_factory=dict)

    @property
    def program(self) -> Path:
        return self.host.tools["containerd"].path

    @property
    def ctr(self) -> Path:
        return self.host.tools["ctr"].path


async def prepare_host(data_dir: Path) -> Host:
    """The host's facts for a cluster that runs pods here, after what has to be mended for that.

    On a hybrid cgroup layout the hugetlb controller is moved to version 1, since crun and
    containerd need it there; tearing down moves it back.
    """
    host = await gather(data_dir)
    try:
        has_moved = host.is_root and join_hugetlb(host.cgroups, HUGETLB_MARKER)
    except OSError as error:
        # Another cluster that starts at this moment may have moved it, so the machine is asked.
        log.warning("hugetlb controller cannot be moved to cgroup version 1", reason=error)
        has_moved = True
    return await gather(data_dir) if has_moved else host


async def plan_engine(
    paths: EnginePaths,
    host: Host,
    network: PodNetwork,
    *,
    mirrors: Mapping[str, str] | None = None,
    log_level: str = "warn",
) -> EnginePlan:
    """The plan for a cluster's engine on this host. `mirrors` maps registries to mirrors' URLs.

    Raises NoEngineError without root or containerd, NoHandlerError when no runtime works,
    CommandError when containerd doesn't answer, ValueError for a mirror that is no URL.
    """
    containerd = await _find_engine(host)
    handlers = await discover(containerd, host.machine, path=host.path)
    configuration = Configuration(
        root=paths.root,
        state=paths.state,
        socket=paths.socket,
        runtimes=runtime_tables(handlers, paths.runtimes),
        default_handler=default_handler(handlers),
        sandbox_image=PAUSE,
        cni_programs=_cni_folder(host),
        cni_configurations=paths.cni,
        snapshotter=OVERLAYFS if host.disk.overlay else NATIVE,
        restricts_oom_score=not host.can_lower_oom_score,
        oom_score=_ENGINE_OOM_SCORE if host.can_lower_oom_score else 0,
        registry_hosts=paths.registries,
        log_level=log_level,
    )
    return EnginePlan(
        paths=paths,
        host=host,
        network=network,
        containerd=containerd,
        handlers=handlers,
        configuration=configuration,
        text=write_configuration(configuration, containerd.version),
        registries=hosts_files(mirrors or {}),
    )


async def _find_engine(host: Host) -> Containerd:
    if not host.is_root:
        raise NoEngineError("a container engine needs root: run as root, or without a node")
    missing = [name for name in ("containerd", "ctr") if name not in host.tools]
    containerd = None if missing else await find_containerd(host.path)
    if containerd is None:
        raise NoEngineError(
            f"{' and '.join(missing) or 'containerd'} not found on PATH: "
            "apt-get install containerd, or give a running engine with --cri"
        )
    return containerd


def _cni_folder(host: Host) -> Path:
    if host.cni.folder is None:
        raise NoEngineError("there are no CNI plugins: apt-get install containernetworking-plugins")
    return host.cni.folder
