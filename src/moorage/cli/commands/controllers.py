"""Command `moor controllers`: runs the controllers without a cluster of ours."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from moorage.attach.processes import controllers
from moorage.cli.daemon import log_level_option, run_until_stopped, server_options
from moorage.controllers import ControllerOptions
from moorage.wire.client.config import ClientConfig

_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.command("controllers")
@server_options
@click.option(
    "--cluster-ca",
    type=_FILE,
    help="Certificate authority of the cluster, for pods and requests; that of the kubeconfig by "
    "default.",
)
@click.option(
    "--cluster-ca-key",
    type=_FILE,
    help="The authority's key. Without it, certificate requests are approved but not signed.",
)
@click.option(
    "--install-definitions",
    is_flag=True,
    help="Install the definitions of runtime.moorage.dev; without them its controllers wait.",
)
@click.option(
    "--create-classes",
    is_flag=True,
    help="Create a RuntimeClass for each handler that a RuntimeProfile says works.",
)
@click.option(
    "--runtimes-only",
    is_flag=True,
    help="Run the controllers of runtime.moorage.dev alone, beside kube-controller-manager.",
)
@click.option(
    "--leader-elect",
    is_flag=True,
    help="With --runtimes-only: work while holding the lease moorage-controllers, of several "
    "processes.",
)
@click.option(
    "--webhook-service",
    default="",
    metavar="NAME",
    help="With --runtimes-only: issue and rotate the certificate of the webhook's Service.",
)
@click.option(
    "--health-port",
    type=click.IntRange(0, 65535),
    default=0,
    show_default=True,
    help="With --runtimes-only: port of /healthz, /readyz and /metrics over HTTP; 0 for none.",
)
@log_level_option
def command(
    *,
    config: ClientConfig,
    cluster_ca: Path | None,
    cluster_ca_key: Path | None,
    install_definitions: bool,
    create_classes: bool,
    runtimes_only: bool,
    leader_elect: bool,
    webhook_service: str,
    health_port: int,
    log_level: str,
) -> None:
    """Run the controllers alone, in the foreground, for any Kubernetes API server.

    Stop kube-controller-manager first: two that act on the same objects disturb each other, unless
    --runtimes-only is given. The kubeconfig's user needs the rights of all controllers, such as
    those of an administrator.
    """
    if runtimes_only:
        if cluster_ca is not None or cluster_ca_key is not None:
            raise click.UsageError("--runtimes-only signs nothing: leave out the authority")
        runtimes = controllers.RuntimesOptions(
            is_leader_elected=leader_elect, webhook=webhook_service, health_port=health_port
        )
        own = ControllerOptions(
            cluster_ca="",
            installs_definitions=install_definitions,
            creates_classes=create_classes,
            removes_gates=True,
            labels_floors=True,
        )
        run_until_stopped(partial(controllers.run_own_group, config, own, runtimes), log_level)
        return
    if leader_elect or webhook_service or health_port:
        raise click.UsageError(
            "--leader-elect, --webhook-service and --health-port need --runtimes-only"
        )
    authority = cluster_ca.read_bytes() if cluster_ca is not None else config.ca
    if authority is None:
        raise click.UsageError("the kubeconfig has no certificate authority: give --cluster-ca")
    options = ControllerOptions(
        cluster_ca=authority.decode(),
        cluster_ca_key=cluster_ca_key,
        installs_definitions=install_definitions,
        creates_classes=create_classes,
    )
    run_until_stopped(partial(controllers.run, config, options), log_level)
