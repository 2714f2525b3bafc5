"""Command `moor backup`: writes a backup of the cluster to a file."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from moorage.cli.options import cluster_of, data_dir_option


@click.command("backup")
@data_dir_option
@click.argument("archive", type=click.Path(path_type=Path, dir_okay=False))
def command(data_dir: Path, archive: Path) -> None:
    """Write a backup of the cluster, running or not, to a new file ARCHIVE (.tar.gz).

    It holds all objects, the settings, certificates and keys: keep it as safe as the cluster.
    Images and the data of volumes are not in it.
    """
    from moorage.cluster.backup import back_up

    cluster = cluster_of(data_dir)
    manifest = back_up(cluster.layout, cluster.settings, archive, datetime.now(UTC))
    click.echo(f"{archive}: cluster {manifest.cluster} at revision {manifest.revision}")
