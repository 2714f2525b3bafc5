"""Command `moor runtimes`: lists the runtime handlers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click
import msgspec

from moorage.cli.handlers import HandlersInUse, handlers_in_use
from moorage.cli.options import cluster_of, data_dir_option
from moorage.cli.output import output_option, show
from moorage.cluster.layout import Layout
from moorage.cluster.machine import inspect_machine
from moorage.cluster.settings import load
from moorage.handlers import Handler

_COLUMNS = ("handler", "runtime", "version", "default", "available", "features")


@click.command("runtimes")
@data_dir_option
@click.option("--all", "shows_all", is_flag=True, help="Include runtimes that are not installed.")
@output_option
def command(data_dir: Path, *, shows_all: bool, output: str) -> None:
    """List the runtime handlers, and why some cannot be used.

    While a cluster runs on its own engine they are the engine's, with the files that define them;
    faults of those files are reported too. With --cri they are those that the engine lists.
    Otherwise they are those found on this machine.
    """
    in_use = asyncio.run(_ask(cluster_of(data_dir).layout))
    shown = [
        handler for handler in in_use.handlers if shows_all or handler.path or handler.available
    ]
    rows = [msgspec.to_builtins(handler) for handler in shown]
    show(rows, _columns(in_use), output, notes=[_notes(handler) for handler in shown])
    for complaint in in_use.complaints:
        # To standard error, so that JSON stays JSON.
        click.echo(f"broken: {complaint}", err=True)


def _notes(handler: Handler) -> list[str]:
    """Return the lines below a handler's row: its file, and why it cannot be used."""
    notes = [handler.file] if handler.file else []
    for reason, remedy in (
        (handler.reason, handler.remedy),
        (handler.defect, handler.defect_remedy),
    ):
        if reason:
            notes.append(f"{reason} → {remedy}" if remedy else reason)
    return notes


async def _ask(layout: Layout) -> HandlersInUse:
    settings = load(layout.settings)
    if settings is not None and settings.has_node and settings.cri:
        return await handlers_in_use(layout, ())
    _, handlers = await inspect_machine(layout)
    return await handlers_in_use(layout, handlers)


def _columns(in_use: HandlersInUse) -> tuple[str, ...]:
    """Return the columns that have values: an external engine lists names and features only."""
    if in_use.handlers and not any(handler.runtime for handler in in_use.handlers):
        return ("handler", "default", "available", "features")
    if any(handler.file for handler in in_use.handlers):
        return _COLUMNS
    return tuple(column for column in _COLUMNS if column != "default")
