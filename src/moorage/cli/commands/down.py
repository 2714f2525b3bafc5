"""Command `moor down`: stops the cluster and its pods."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from moorage.cli.factory import factory
from moorage.cli.options import cluster_of, data_dir_option


@click.command("down")
@data_dir_option
@click.option("--keep-pods", is_flag=True, help="Leave pods running for the next `moor up`.")
@click.option(
    "--abandon-pods",
    is_flag=True,
    help="With --cri: give up pods whose engine cannot be reached.",
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
    cluster = cluster_of(data_dir)
    # Teardown logs what it cannot remove from the host.
    factory().configure_logs("warning")
    stopping = cluster.stop(keeps_pods=keep_pods, abandons_pods=abandon_pods)
    click.echo("stopped" if asyncio.run(stopping) else "was not running")
    if delete_data:
        cluster.delete()
        click.echo(f"deleted {cluster.directory}")
