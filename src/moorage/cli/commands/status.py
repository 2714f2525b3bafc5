"""Command `moor status`: prints the status of the cluster's parts."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from moorage.cli.options import cluster_of, data_dir_option
from moorage.cli.output import dim, output_option, show
from moorage.cluster import PartStatus

_COLUMNS = ("part", "state", "pid", "restarts", "ready_after", "memory")


@click.command("status")
@data_dir_option
@output_option
def command(data_dir: Path, *, output: str) -> None:
    """Show the status of the cluster's parts. Exit status 3 when it is not running."""
    cluster = cluster_of(data_dir)
    settings, parts = cluster.running_settings(), cluster.parts
    notes = [[f"last end: {part.last_end}"] if part.last_end else [] for part in parts]
    show([_row(part) for part in parts], _COLUMNS, output, notes=notes if any(notes) else ())
    if output == "table":
        click.echo(dim(f"\nAPI {settings.server} · data {cluster.directory}"))


def _row(status: PartStatus) -> dict[str, Any]:
    after_s, memory = status.ready_after_s, status.memory_bytes
    return asdict(status) | {
        "ready_after": f"{after_s:.2f} s" if after_s is not None else None,
        "memory": f"{memory / 2**20:.0f} MiB" if memory is not None else None,
    }
