"""Command `moor restore`: puts a backup in the place of a stopped cluster."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from moorage.cli.options import cluster_of, data_dir_option
from moorage.cluster.supervision.supervise import moor_command


@click.command("restore")
@data_dir_option
@click.argument("archive", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option("--replace", is_flag=True, help="Move the cluster that is there aside.")
def command(data_dir: Path, archive: Path, *, replace: bool) -> None:
    """Put the backup ARCHIVE in the place of a stopped cluster, or make a cluster of it.

    The archive is verified first. What it replaces is kept in the directory `replaced` of the data
    directory.
    """
    from moorage.cluster.restore import restore

    cluster = cluster_of(data_dir)
    manifest = restore(cluster.layout, archive, replaces=replace, now=datetime.now(UTC))
    click.echo(
        f"restored cluster {manifest.cluster} as of {manifest.created}, revision "
        f"{manifest.revision}; {moor_command(cluster.layout, 'up')} starts it"
    )
