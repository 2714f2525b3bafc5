"""Engine options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from moorage.engine.handlers.definition import CgroupDriver
from moorage.engine.images.manifest import ImageLimits
from moorage.engine.oci.context import Rlimit
from moorage.engine.paths import EnginePaths
from moorage.engine.requirements import CNI_CONFIGURATIONS, CNI_PROGRAMS, HANDLER_DIRECTORY
from moorage.linux.host import Host


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """The settings of an engine. `search_path` is that for programs, as PATH.

    `spare_networks` is how many networks are made in advance; `registry_mirrors` maps a registry
    to a mirror's URL; `rlimits` are set on every container; `stream_port` is 0 for any port;
    `cgroup_driver` is for handlers whose file names none; `host` is read at the engine's start if
    it is not given.
    """

    paths: EnginePaths
    socket: Path
    search_path: str
    cni_programs: tuple[Path, ...] = CNI_PROGRAMS
    cni_configurations: Path = CNI_CONFIGURATIONS
    handler_directories: tuple[Path, ...] = (HANDLER_DIRECTORY,)
    cgroup_driver: CgroupDriver = CgroupDriver.CGROUPFS
    spare_networks: int = 4
    registry_mirrors: Mapping[str, str] = field(default_factory=dict)
    stream_address: str = "127.0.0.1"
    stream_port: int = 0
    rlimits: tuple[Rlimit, ...] = ()
    pinned_images: frozenset[str] = frozenset()
    image_limits: ImageLimits = field(default_factory=ImageLimits)
    host: Host | None = None
