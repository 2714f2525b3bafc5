"""Command `moor doctor`: checks the host and prints remedies."""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from pathlib import Path

import click
import msgspec

from moorage.cli.errors import CANNOT_RUN_PODS
from moorage.cli.factory import factory
from moorage.cli.options import cluster_of, data_dir_option
from moorage.cli.output import output_option, show
from moorage.cluster.host import Inventory
from moorage.cluster.host.findings import can_run_pods
from moorage.cluster.layout import Layout
from moorage.cluster.settings import load
from moorage.engine.handlers import Handler
from moorage.engine.paths import EnginePaths
from moorage.engine.requirements import HANDLER_DIRECTORY

_COLUMNS = ("subject", "state", "meaning")


@click.command("doctor")
@data_dir_option
@click.option("--install", is_flag=True, help="Install missing Debian packages first.")
@click.option("--deep", is_flag=True, help="Read the cluster's whole store too.")
@output_option
def command(data_dir: Path, *, install: bool, deep: bool, output: str) -> None:
    """Check everything on this machine that pods need, and print how to correct faults.

    Exit status 4 when something keeps pods from running here.
    """
    layout = cluster_of(data_dir).layout
    host, handlers = asyncio.run(_inspect(layout, is_installing=install))
    directories = (HANDLER_DIRECTORY, EnginePaths(layout.engine, layout.engine).handlers)
    findings = factory().examine(host, handlers, directories)
    if deep:
        # Imported here: only this option reads the store.
        from moorage.inspect.store_findings import examine_store

        findings += examine_store(layout)
    remedies = [[f"→ {finding.remedy}"] if finding.remedy else [] for finding in findings]
    show([msgspec.to_builtins(finding) for finding in findings], _COLUMNS, output, notes=remedies)
    if not can_run_pods(findings):
        sys.exit(CANNOT_RUN_PODS)


async def _inspect(layout: Layout, *, is_installing: bool) -> tuple[Inventory, tuple[Handler, ...]]:
    """Return the host and its handlers.

    A handler whose definition file names another program has that program's version and defect.
    """
    host, handlers = await factory().inspect_machine(
        layout, is_installing=is_installing, report=partial(click.echo, err=True)
    )
    settings = load(layout.settings)
    if settings is not None and settings.cri:
        # The programs that an external engine runs are not known.
        return host, handlers
    in_use = await factory().handlers_in_use(layout, handlers)
    in_force = {handler.handler: handler for handler in in_use.handlers}
    return host, tuple(as_in_force(handler, in_force.get(handler.handler)) for handler in handlers)


def as_in_force(handler: Handler, own: Handler | None) -> Handler:
    """Return a handler with the path, version and defect of the program that its file names."""
    if own is None or not own.available:
        return handler
    return msgspec.structs.replace(
        handler,
        path=own.path,
        version=own.version,
        defect=own.defect,
        defect_remedy=own.defect_remedy,
    )
