"""`moor logs`."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import click

from moorage.cli.errors import CliError
from moorage.cli.options import data_dir_option, layout_of, present_settings

PARTS = ("supervisor", "apiserver", "controllers", "node", "engine")


@click.command("logs")
@click.argument("part", type=click.Choice(PARTS))
@data_dir_option
@click.option("--follow", "-f", is_flag=True, help="Go on as the log grows.")
@click.option("--lines", "-n", type=click.IntRange(0), default=100, show_default=True)
def command(part: str, data_dir: Path, *, follow: bool, lines: int) -> None:
    """Show what a part wrote."""
    layout = layout_of(data_dir)
    present_settings(layout)
    path = layout.log(part)
    if not path.exists():
        raise CliError(f"{part} has written nothing: {path} does not exist")
    tail = shutil.which("tail")
    if tail is None:
        raise CliError(f"the program tail is missing; the log is {path}")
    argv = [tail, "-n", str(lines), *(["-F"] if follow else []), str(path)]
    if follow:
        os.execv(tail, argv)
    subprocess.run(argv, check=True)
