"""`moor down`."""

from __future__ import annotations

from pathlib import Path

import click

from moorage.cli.options import data_dir_option, layout_of, present_settings
from moorage.cli.teardown import take_down
from moorage.linux.id_register import forget
from moorage.linux.trees import remove_tree


@click.command("down")
@data_dir_option
@click.option("--keep-pods", is_flag=True, help="Leave pods running for the next `moor up`.")
@click.option(
    "--abandon-pods",
    is_flag=True,
    help="With --cri: leave pods to an engine that cannot be reached.",
)
@click.option("--delete-data", is_flag=True, help="Delete the data directory too.")
def command(data_dir: Path, *, keep_pods: bool, abandon_pods: bool, delete_data: bool) -> None:
    """Stop the cluster and its pods, and leave the machine as it was; the data stays.

    On an engine given with --cri the cluster's pods are removed too; those of others stay.

    The next `moor up` on the directory starts the pods again.
    """
    if keep_pods and delete_data:
        raise click.UsageError("--keep-pods and --delete-data exclude each other")
    if keep_pods and abandon_pods:
        raise click.UsageError("--keep-pods and --abandon-pods exclude each other")
    layout = layout_of(data_dir)
    settings = present_settings(layout)
    was_running = take_down(layout, settings, keep_pods=keep_pods, abandons_pods=abandon_pods)
    click.echo("stopped" if was_running else "was not running")
    if delete_data:
        remove_tree(layout.root)
        forget(layout.node / "pods")
        click.echo(f"deleted {layout.root}")
