"""`moor runtimes`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click
import msgspec

from moorage.cli.machine import look
from moorage.cli.options import data_dir_option, layout_of
from moorage.cli.output import output_option, show

_COLUMNS = ("handler", "runtime", "version", "available", "features", "reason")


@click.command("runtimes")
@data_dir_option
@click.option("--all", "shows_all", is_flag=True, help="Those not installed too.")
@output_option
def command(data_dir: Path, *, shows_all: bool, output: str) -> None:
    """List the runtime handlers of this machine, and why some cannot be used.

    FEATURES are what pods get under the engine of `moor up`.
    """
    _, handlers = asyncio.run(look(layout_of(data_dir)))
    rows = [
        msgspec.to_builtins(each) for each in handlers if shows_all or each.path or each.available
    ]
    for row in rows:
        if row["reason"] and row["remedy"]:
            row["reason"] += f" → {row['remedy']}"
    show(rows, _COLUMNS, output)
