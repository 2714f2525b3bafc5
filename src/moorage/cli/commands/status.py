"""`moor status`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from moorage.cli.options import data_dir_option, layout_of, running_settings
from moorage.cli.output import dim, output_option, show
from moorage.cluster.status import PartStatus, part_statuses

_COLUMNS = ("part", "state", "pid", "restarts", "ready_after", "memory")


@click.command("status")
@data_dir_option
@output_option
def command(data_dir: Path, *, output: str) -> None:
    """Say how the cluster's parts are. Exit status 3 when it is not running."""
    layout = layout_of(data_dir)
    settings = running_settings(layout)
    statuses = part_statuses(layout)
    notes = [[f"last end: {each.last_end}"] if each.last_end else [] for each in statuses]
    show([_row(each) for each in statuses], _COLUMNS, output, notes=notes if any(notes) else ())
    if output == "table":
        click.echo(dim(f"\nAPI {settings.server} · data {layout.root}"))


def _row(status: PartStatus) -> dict[str, Any]:
    after_s, memory = status.ready_after_s, status.memory_bytes
    return asdict(status) | {
        "ready_after": f"{after_s:.2f} s" if after_s is not None else None,
        "memory": f"{memory / 2**20:.0f} MiB" if memory is not None else None,
    }
