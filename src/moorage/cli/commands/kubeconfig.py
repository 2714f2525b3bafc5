"""Command `moor kubeconfig`: prints the kubeconfig's path, or merges it."""

from __future__ import annotations

from pathlib import Path

import click

from moorage.cli.options import cluster_of, data_dir_option
from moorage.cluster.access import kubeconfig

_USER_FILE = Path.home() / ".kube" / "config"


@click.command("kubeconfig")
@data_dir_option
@click.option("--merge", is_flag=True, help="Add the cluster to your own kubeconfig.")
@click.option("--unmerge", is_flag=True, help="Take the cluster out of your own kubeconfig.")
@click.option(
    "--file",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    default=_USER_FILE,
    show_default="~/.kube/config",
    help="Your own kubeconfig.",
)
def command(data_dir: Path, *, merge: bool, unmerge: bool, file: Path) -> None:
    """Print the path of the cluster's kubeconfig, or add the cluster to yours.

    Your own file is never written without --merge or --unmerge.
    """
    if merge and unmerge:
        raise click.UsageError("--merge and --unmerge exclude each other")
    cluster = cluster_of(data_dir)
    name = cluster.settings.name
    if merge:
        kubeconfig.merge(file, cluster.access)
        click.echo(f"added context {name} to {file}")
    elif unmerge:
        kubeconfig.unmerge(file, name)
        click.echo(f"removed {name} from {file}")
    else:
        click.echo(str(cluster.kubeconfig))
