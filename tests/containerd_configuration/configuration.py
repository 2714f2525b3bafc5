"""containerd configuration for tests and benchmarks.

Values in, one TOML document out. Up to 1.7 containerd reads version 2 of its format, from 2.0 on
version 3, where the CRI plugin is split in three. Only differences from containerd's own defaults
are written. Source: containerd, "CRI Plugin Config Guide" and `containerd config default`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from moorage.engine.handlers.runtimes import RUNC_SHIM
from moorage.linux.program import Version
from tests.containerd_configuration.toml import Table, Value, write_toml

OVERLAYFS = "overlayfs"
NATIVE = "native"
SNAPSHOTTERS = (OVERLAYFS, NATIVE)

_V2_CRI = "io.containerd.grpc.v1.cri"
_V3_RUNTIME = "io.containerd.cri.v1.runtime"
_V3_IMAGES = "io.containerd.cri.v1.images"

_UNUSED_SNAPSHOTTERS = (
    "io.containerd.snapshotter.v1.aufs",
    "io.containerd.snapshotter.v1.blockfile",
    "io.containerd.snapshotter.v1.btrfs",
    "io.containerd.snapshotter.v1.devmapper",
    "io.containerd.snapshotter.v1.erofs",
    "io.containerd.snapshotter.v1.zfs",
)
_UNUSED = (
    # Creates /opt/containerd, and puts it into every shim's library path.
    "io.containerd.internal.v1.opt",
    # Restarts containers by their labels, every ten seconds; the node agent does that.
    "io.containerd.internal.v1.restart",
    "io.containerd.monitor.container.v1.restart",
    # Its socket has a fixed path, which two containerd instances cannot share.
    "io.containerd.nri.v1.nri",
    "io.containerd.internal.v1.tracing",
    "io.containerd.tracing.processor.v1.otlp",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeTable:
    """A runtime handler of the engine.

    `program` is the OCI runtime that runc's shim drives, None for shims that bring their own.
    `root` is that runtime's state directory. `configuration` is a configuration file for the shim.
    """

    handler: str
    shim_type: str = RUNC_SHIM
    program: Path | None = None
    root: Path | None = None
    configuration: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """The settings of a containerd. All paths are absolute.

    `stream_port` 0 is any port. `restricts_oom_score` is for hosts without CAP_SYS_RESOURCE, where
    every sandbox would fail otherwise. `registry_hosts` is the directory with one `hosts.toml` for
    each registry that has mirrors.
    """

    root: Path
    state: Path
    socket: Path
    runtimes: tuple[RuntimeTable, ...]
    default_handler: str
    sandbox_image: str
    cni_programs: Path
    cni_configurations: Path
    snapshotter: str = OVERLAYFS
    uses_systemd_cgroups: bool = False
    restricts_oom_score: bool = False
    oom_score: int = 0
    registry_hosts: Path | None = None
    stream_address: str = "127.0.0.1"
    stream_port: int = 0
    log_level: str = "warn"


def configuration_version(containerd: Version) -> int:
    """Return the version of the file format for a containerd. Raises ValueError before 1.5.

    1.5 is the oldest release that reads all keys written here.
    """
    if containerd.is_before((1, 5)):
        raise ValueError(f"containerd {containerd} is too old: 1.5 or later is needed")
    return 2 if containerd.major < 2 else 3


def write_configuration(configuration: Configuration, containerd: Version) -> str:
    """Return the text of config.toml for a containerd of that version.

    Raises ValueError for a default handler without table, an unknown snapshotter, and a containerd
    that is too old.
    """
    _check(configuration)
    version = configuration_version(containerd)
    plugins = _version_2(configuration) if version == 2 else _version_3(configuration, containerd)
    return write_toml(
        {
            "version": version,
            "root": str(configuration.root),
            "state": str(configuration.state),
            "oom_score": configuration.oom_score,
            "disabled_plugins": _disabled(configuration.snapshotter),
            "grpc": {"address": str(configuration.socket)},
            "debug": {"level": configuration.log_level},
            "plugins": plugins,
        }
    )


def _check(configuration: Configuration) -> None:
    handlers = [table.handler for table in configuration.runtimes]
    if configuration.default_handler not in handlers:
        raise ValueError(
            f"the default handler {configuration.default_handler!r} is none of the handlers "
            f"{', '.join(handlers) or '(none)'}"
        )
    if configuration.snapshotter not in SNAPSHOTTERS:
        raise ValueError(
            f"snapshotter {configuration.snapshotter!r} is not one of {', '.join(SNAPSHOTTERS)}"
        )


def _disabled(snapshotter: str) -> list[str]:
    others = [
        f"io.containerd.snapshotter.v1.{name}" for name in SNAPSHOTTERS if name != snapshotter
    ]
    return sorted({*_UNUSED_SNAPSHOTTERS, *_UNUSED, *others})


def _version_2(configuration: Configuration) -> Table:
    return {
        _V2_CRI: {
            **_streaming(configuration),
            **_sandboxes(configuration),
            "sandbox_image": configuration.sandbox_image,
            "cni": _networks(configuration),
            "containerd": {
                "snapshotter": configuration.snapshotter,
                **_handlers(configuration),
            },
            "registry": _registry(configuration),
        }
    }


def _version_3(configuration: Configuration, containerd: Version) -> Table:
    networks = dict(_networks(configuration))
    if not containerd.is_before((2, 2)):
        networks["bin_dirs"] = [str(networks.pop("bin_dir"))]
    return {
        "io.containerd.grpc.v1.cri": _streaming(configuration),
        _V3_RUNTIME: {
            **_sandboxes(configuration),
            # Without it every sandbox runs a plugin for one system call.
            "cni": {**networks, "use_internal_loopback": True},
            "containerd": _handlers(configuration),
        },
        _V3_IMAGES: {
            "snapshotter": configuration.snapshotter,
            "pinned_images": {"sandbox": configuration.sandbox_image},
            "registry": _registry(configuration),
        },
    }


def _streaming(configuration: Configuration) -> Table:
    return {
        "stream_server_address": configuration.stream_address,
        "stream_server_port": str(configuration.stream_port),
    }


def _sandboxes(configuration: Configuration) -> Table:
    return {
        "restrict_oom_score_adj": configuration.restricts_oom_score,
        # Beside the sandboxes, so that they are removed with the engine's state.
        "netns_mounts_under_state_dir": True,
        # The defaults of containerd 2, with which images for port 80 run as any user.
        "enable_unprivileged_ports": True,
        "enable_unprivileged_icmp": True,
    }


def _networks(configuration: Configuration) -> Table:
    return {
        "bin_dir": str(configuration.cni_programs),
        "conf_dir": str(configuration.cni_configurations),
    }


def _registry(configuration: Configuration) -> Table:
    hosts = configuration.registry_hosts
    return {} if hosts is None else {"config_path": str(hosts)}


def _handlers(configuration: Configuration) -> Table:
    return {
        "default_runtime_name": configuration.default_handler,
        "runtimes": {
            table.handler: _runtime(table, configuration) for table in configuration.runtimes
        },
    }


def _runtime(table: RuntimeTable, configuration: Configuration) -> Table:
    options: dict[str, Value] = {}
    if table.shim_type == RUNC_SHIM:
        options["SystemdCgroup"] = configuration.uses_systemd_cgroups
        if table.program is not None:
            options["BinaryName"] = str(table.program)
        if table.root is not None:
            options["Root"] = str(table.root)
    elif table.configuration is not None:
        options["ConfigPath"] = str(table.configuration)
        options["TypeUrl"] = f"{table.shim_type}.options"
    written: dict[str, Value] = {"runtime_type": table.shim_type}
    if table.shim_type != RUNC_SHIM:
        # A privileged pod under a virtualised runtime gets no devices of the host.
        written["privileged_without_host_devices"] = True
    return {**written, "options": options} if options else written
