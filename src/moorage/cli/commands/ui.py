"""Command `moor ui`: serves the web page of runtimes for any Kubernetes API server."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import partial
from pathlib import Path

import click

from moorage.api.logs import Log
from moorage.apiserver.web_page.doors import KeyDoor, TokenDoor
from moorage.apiserver.web_page.server import PageOptions, serve_page
from moorage.cli.connection import Target, connection_options
from moorage.cli.daemon import log_level_option, run_until_stopped
from moorage.wire.client.config import ClientConfig, in_cluster_anonymous_config
from moorage.wire.client.rest import Client

_KEY_BYTES = 24
_ANY_ADDRESS = "0.0.0.0"
_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)

log = Log(__name__)


@click.command("ui")
@connection_options
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Port to listen on; a free one by default.",
)
@click.option(
    "--in-cluster",
    is_flag=True,
    help="Run in a pod, without credentials: the page is read with the token that comes with each "
    "request.",
)
@click.option(
    "--certificate-authority",
    "authority",
    type=_FILE,
    help="With --in-cluster, the cluster's authority, as in the ConfigMap kube-root-ca.crt.",
)
@click.option(
    "--tls-cert-file",
    "certificate",
    type=_FILE,
    help="With --in-cluster, serve HTTPS with this certificate; read again when it changes.",
)
@click.option("--tls-private-key-file", "key", type=_FILE, help="Its key.")
@log_level_option
def command(
    *,
    target: Target,
    port: int,
    in_cluster: bool,
    authority: Path | None,
    certificate: Path | None,
    key: Path | None,
    log_level: str,
) -> None:
    """Serve the web page of runtimes, until Ctrl-C.

    It prints an address that works on this machine and for who knows it alone: the page shows
    what the kubeconfig's user may read.
    """
    if in_cluster != (authority is not None):
        raise click.UsageError("--in-cluster and --certificate-authority go together")
    if (certificate is None) != (key is None):
        raise click.UsageError("--tls-cert-file and --tls-private-key-file go together")
    if certificate is not None and not in_cluster:
        raise click.UsageError("--tls-cert-file goes with --in-cluster")
    if in_cluster:
        assert authority is not None
        options = PageOptions(_ANY_ADDRESS, port, certificate, key)
        run_until_stopped(
            partial(_for_viewers, in_cluster_anonymous_config(authority), options), log_level
        )
    else:
        run_until_stopped(
            partial(_for_the_user, target.config(), PageOptions(port=port)), log_level
        )


async def _for_the_user(
    config: ClientConfig, options: PageOptions, ready: Callable[[], None]
) -> None:
    def started(port: int) -> None:
        click.echo(f"The page is at http://127.0.0.1:{port}/{key}/ui/ until Ctrl-C.")
        ready()

    key = secrets.token_urlsafe(_KEY_BYTES)
    async with Client(config, user_agent="moor-ui") as client:
        # What cannot work is said here, rather than in the browser.
        await client.request("GET", "/version")
        await serve_page(KeyDoor(client, key), options, started)


async def _for_viewers(
    config: ClientConfig, options: PageOptions, ready: Callable[[], None]
) -> None:
    def started(port: int) -> None:
        log.info("page listens", port=port, server=config.server)
        ready()

    await serve_page(TokenDoor(config), options, started)
