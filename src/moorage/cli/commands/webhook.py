"""Command `moor webhook`: runs the admission webhook without a cluster of ours."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from moorage.attach.processes import webhook
from moorage.attach.webhook import WebhookOptions
from moorage.cli.daemon import log_level_option, run_until_stopped, server_options
from moorage.wire.client.config import ClientConfig

_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.command("webhook")
@server_options
@click.option(
    "--tls-cert-file",
    "certificate",
    type=_FILE,
    required=True,
    help="Certificate for the name that API servers call; it is read again when it changes.",
)
@click.option("--tls-private-key-file", "key", type=_FILE, required=True, help="Its key.")
@click.option("--bind-address", "address", default="0.0.0.0", show_default=True)
@click.option("--port", type=click.IntRange(0, 65535), default=9443, show_default=True)
@click.option(
    "--place-by-handler",
    is_flag=True,
    help="Have pods require nodes with the handler of their class, for schedulers that do not know "
    "handlers; hold pods for which no node has it.",
)
@click.option(
    "--shutdown-delay",
    "shutdown_delay_s",
    type=click.FloatRange(0.0, 60.0),
    default=0.0,
    show_default=True,
    metavar="SECONDS",
    help="After SIGTERM, time to answer while not ready, until API servers call others.",
)
@log_level_option
def command(
    *,
    config: ClientConfig,
    certificate: Path,
    key: Path,
    address: str,
    port: int,
    place_by_handler: bool,
    shutdown_delay_s: float,
    log_level: str,
) -> None:
    """Run the admission webhook alone, in the foreground, for any Kubernetes API server.

    It chooses and checks the classes of pods as the API server of `moor up` does in process:
    defaults, needs, floors, allow-lists and checks of RuntimePolicies. The kubeconfig's user lists
    and watches RuntimeClasses, Nodes, Namespaces and the objects of runtime.moorage.dev.
    """
    options = WebhookOptions(certificate, key, address, port)
    run = partial(
        webhook.run,
        config,
        options,
        places_by_handler=place_by_handler,
        shutdown_delay_s=shutdown_delay_s,
    )
    run_until_stopped(run, log_level)
