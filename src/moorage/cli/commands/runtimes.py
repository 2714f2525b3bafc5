"""`moor runtimes`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click
import msgspec

from moorage.cli.handlers import HandlersTold, told_handlers
from moorage.cli.machine import look
from moorage.cli.options import data_dir_option, layout_of
from moorage.cli.output import output_option, show
from moorage.cluster.layout import Layout

_COLUMNS = (
    "handler", "runtime", "version", "default", "available", "features", "file", "reason",
)  # fmt: skip


@click.command("runtimes")
@data_dir_option
@click.option("--all", "shows_all", is_flag=True, help="Those not installed too.")
@output_option
def command(data_dir: Path, *, shows_all: bool, output: str) -> None:
    """List the runtime handlers, and why some cannot be used.

    While a cluster runs on an engine of our own they are the engine's, with the files that define
    them; what is wrong with files is told too. Otherwise they are those found on this machine.
    """
    told = asyncio.run(_ask(layout_of(data_dir)))
    rows = [
        msgspec.to_builtins(each)
        for each in told.handlers
        if shows_all or each.path or each.available
    ]
    for row in rows:
        if row["reason"] and row["remedy"]:
            row["reason"] += f" → {row['remedy']}"
    show(rows, _columns(told), output)
    for complaint in told.complaints:
        # To standard error, so that JSON stays JSON.
        click.echo(f"broken: {complaint}", err=True)


async def _ask(layout: Layout) -> HandlersTold:
    _, found = await look(layout)
    return await told_handlers(layout, found)


def _columns(told: HandlersTold) -> tuple[str, ...]:
    """Without an engine nothing is the default, and nothing defined."""
    if any(each.file for each in told.handlers):
        return _COLUMNS
    return tuple(each for each in _COLUMNS if each not in ("default", "file"))
