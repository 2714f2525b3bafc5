"""`moor image`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from moorage.cli.errors import CliError
from moorage.cli.options import data_dir_option, layout_of, running_settings
from moorage.cluster.engine import engine_paths
from moorage.cluster.images.loading import LoadError, load_archive


@click.group("image")
def command() -> None:
    """Bring images into the cluster's engine."""


@command.command("load")
@click.argument(
    "archives",
    nargs=-1,
    required=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
)
@data_dir_option
def load(archives: tuple[Path, ...], data_dir: Path) -> None:
    """Load images from OCI or Docker archives (`skopeo copy … oci-archive:FILE:NAME`)."""
    layout = layout_of(data_dir)
    settings = running_settings(layout)
    if settings.cri or not settings.has_node:
        raise CliError(
            "images are loaded into the cluster's own engine only; this cluster "
            + (f"uses the one at {settings.cri}" if settings.cri else "has no node")
        )
    endpoint = engine_paths(layout, settings).endpoint
    for archive in archives:
        try:
            names = asyncio.run(load_archive(endpoint, archive))
        except LoadError as error:
            raise CliError(str(error)) from error
        for name in names:
            click.echo(name)
