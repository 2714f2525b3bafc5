"""`moor doctor`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click
import msgspec

from moorage.cli.errors import CANNOT_RUN_PODS
from moorage.cli.machine import look
from moorage.cli.options import data_dir_option, layout_of
from moorage.cli.output import output_option, show
from moorage.cluster.doctor import can_run_pods, examine

_COLUMNS = ("subject", "state", "meaning", "remedy")


@click.command("doctor")
@data_dir_option
@click.option("--install", is_flag=True, help="Install missing Debian packages first.")
@output_option
def command(data_dir: Path, *, install: bool, output: str) -> None:
    """Look at everything on this machine that matters to pods, and say how to mend what is wrong.

    Exit status 4 when something keeps pods from running here.
    """
    findings = examine(*asyncio.run(look(layout_of(data_dir), is_installing=install)))
    show([msgspec.to_builtins(each) for each in findings], _COLUMNS, output)
    if not can_run_pods(findings):
        sys.exit(CANNOT_RUN_PODS)
