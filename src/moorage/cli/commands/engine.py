"""Command `moor engine`: runs the container engine without a cluster."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import click

from moorage.api.logs import Log
from moorage.cli.errors import CliError
from moorage.cli.factory import Factory, factory
from moorage.cli.options import LOG_LEVELS, mirror_option, pairs, size_bytes, socket_path
from moorage.cluster.daemon import Service, until_stopped
from moorage.cluster.errors import CannotRunPodsError
from moorage.engine.errors import EngineError
from moorage.engine.handlers import search_path
from moorage.engine.handlers.definition import CgroupDriver
from moorage.engine.images.manifest import ImageLimits
from moorage.engine.options import EngineOptions
from moorage.engine.paths import EnginePaths
from moorage.engine.requirements import (
    CNI_CONFIGURATIONS,
    CNI_PROGRAMS,
    HANDLER_DIRECTORY,
    NEEDED_PROGRAMS,
)
from moorage.linux.host import has_systemd
from moorage.linux.trust import UMASK

_RUN_PATH_BYTES = 60
_DIRECTORY = click.Path(path_type=Path, file_okay=False)

log = Log(__name__)


@click.command("engine")
@click.option(
    "--listen",
    metavar="ENDPOINT",
    default="unix:///run/moorage-engine/engine.sock",
    show_default=True,
    help="Socket that serves the CRI.",
)
@click.option(
    "--data-dir",
    type=_DIRECTORY,
    default=Path("/var/lib/moorage-engine"),
    show_default=True,
    help="Persistent state: images, records and handlers.",
)
@click.option(
    "--run-dir",
    type=_DIRECTORY,
    default=Path("/run/moorage-engine"),
    show_default=True,
    help="State that a reboot clears: bundles, namespaces. A short path, as it holds sockets.",
)
@click.option(
    "--handlers-dir",
    "handler_directories",
    type=_DIRECTORY,
    multiple=True,
    default=(HANDLER_DIRECTORY,),
    show_default=str(HANDLER_DIRECTORY),
    help="Directory of handler files, before the data directory's; repeatable.",
)
@click.option(
    "--cni-bin",
    "cni_programs",
    type=_DIRECTORY,
    multiple=True,
    default=CNI_PROGRAMS,
    show_default=" ".join(map(str, CNI_PROGRAMS)),
    help="Directory of CNI plugins; repeatable.",
)
@click.option(
    "--cni-conf",
    type=_DIRECTORY,
    default=CNI_CONFIGURATIONS,
    show_default=True,
    help="Directory of CNI configuration; the first file by name is used.",
)
@click.option(
    "--cgroup-driver",
    type=click.Choice([driver.value for driver in CgroupDriver]),
    default=CgroupDriver.CGROUPFS.value,
    show_default=True,
    help="Who makes the cgroups of handlers whose file does not say; the kubelet follows.",
)
@mirror_option
@click.option(
    "--image-limit",
    metavar="QUANTITY",
    default="128Gi",
    show_default=True,
    help="Maximum unpacked size of an image.",
)
@click.option(
    "--clear",
    is_flag=True,
    help="Stop all pods, release their networks and exit; images and handlers stay.",
)
@click.option("--log-level", type=click.Choice(LOG_LEVELS), default="info", show_default=True)
def command(
    *,
    listen: str,
    data_dir: Path,
    run_dir: Path,
    handler_directories: tuple[Path, ...],
    cni_programs: tuple[Path, ...],
    cni_conf: Path,
    cgroup_driver: str,
    mirrors: tuple[str, ...],
    image_limit: str,
    clear: bool,
    log_level: str,
) -> None:
    """Run the container engine alone, in the foreground, for a kubelet or crictl to use.

    Its log goes to standard error. SIGTERM ends it; containers go on, and the next one on the
    same directories takes them over. Under systemd it notifies when it is ready (Type=notify).
    """
    run = run_dir.absolute()
    if len(bytes(run)) > _RUN_PATH_BYTES:
        raise click.UsageError(
            f"--run-dir: {run} is longer than {_RUN_PATH_BYTES} bytes, too long for sockets in it"
        )
    options = EngineOptions(
        paths=EnginePaths(data_dir.absolute(), run),
        socket=socket_path("--listen", listen),
        search_path=search_path(),
        cni_programs=cni_programs,
        cni_configurations=cni_conf,
        handler_directories=handler_directories,
        cgroup_driver=CgroupDriver(cgroup_driver),
        registry_mirrors=pairs("--registry-mirror", mirrors),
        image_limits=ImageLimits(unpacked_bytes=size_bytes("--image-limit", image_limit)),
    )
    _check_machine(options)
    os.umask(UMASK)
    made = factory()
    service = made.service()
    made.configure_logs(log_level)
    made.calm_collector()
    try:
        # Not uvloop, which does not let the engine reap every child.
        asyncio.run(
            until_stopped(_clear(made, options) if clear else _serve(made, options, service))
        )
    except EngineError as error:
        raise CliError(error.sentence) from error


async def _serve(made: Factory, options: EngineOptions, service: Service) -> None:
    async with made.run_engine(options) as engine, engine.serving():
        service.ready()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            service.stopping()


async def _clear(made: Factory, options: EngineOptions) -> None:
    async with made.run_engine(options) as engine:
        await engine.remove_all()


def _check_machine(options: EngineOptions) -> None:
    """Raise CannotRunPodsError without root, or without a program that the engine needs."""
    path = options.search_path
    if factory().euid() != 0:
        raise CannotRunPodsError("a container engine needs root: run as root")
    missing = [name for name in NEEDED_PROGRAMS if factory().find_program(name, path) is None]
    if missing:
        packages = " ".join(NEEDED_PROGRAMS[name] for name in missing)
        raise CannotRunPodsError(
            f"not found on PATH: {' '.join(missing)}; apt-get install {packages}"
        )
    if options.cgroup_driver is CgroupDriver.SYSTEMD and not has_systemd():
        raise CannotRunPodsError(
            "--cgroup-driver systemd: no systemd runs on this host: use cgroupfs"
        )
