"""Command `moor node`: runs the node agent without a cluster of ours."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path

import click

from moorage.api.host_ports import Listener
from moorage.attach.processes import node as part
from moorage.cli.daemon import log_level_option, run_until_stopped, server_options
from moorage.cli.factory import factory
from moorage.cli.options import pairs, socket_path
from moorage.cluster.errors import CannotRunPodsError
from moorage.cluster.layout import CLUSTER_DOMAIN, NODE_CLIENT_NAME, Layout
from moorage.cluster.reservations import system_reserved
from moorage.cluster.settings import DEFAULT_NODE_PORT, host_ip, node_name
from moorage.linux.host import read_host
from moorage.node.configuration import ConfigurationError, NodeConfiguration, load_configuration
from moorage.node.options import NodeOptions, OptionsError, ServerOptions
from moorage.wire.client.config import ClientConfig

_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.command("node")
@server_options
@click.option("--cri", metavar="ENDPOINT", required=True, help="The engine: unix:///path/to.sock.")
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("/var/lib/moorage-node"),
    show_default=True,
    help="Volumes, records and container logs.",
)
@click.option("--node-name", "name", help="The node's name; the host's by default.")
@click.option("--node-ip", "address", help="The node's address; the host's by default.")
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=DEFAULT_NODE_PORT,
    show_default=True,
    help="Port for the API server: logs, exec, port-forward.",
)
@click.option("--tls-cert", type=_FILE, help="Server certificate of that port.")
@click.option("--tls-key", type=_FILE, help="Its key.")
@click.option("--client-ca", type=_FILE, help="Authority of the API server's client certificate.")
@click.option(
    "--api-server-name",
    "callers",
    multiple=True,
    default=(NODE_CLIENT_NAME,),
    show_default=True,
    help="Common name of that certificate; repeatable.",
)
@click.option(
    "--cgroup-root", default="/moorage-node", show_default=True, help="Cgroup of the node's pods."
)
@click.option(
    "--node-label", "labels", multiple=True, metavar="KEY=VALUE", help="Label of the node."
)
@click.option("--cluster-dns", multiple=True, metavar="ADDRESS", help="Name server of the pods.")
@click.option("--cluster-domain", default=CLUSTER_DOMAIN, show_default=True)
@click.option(
    "--pod-api-server",
    metavar="HOST:PORT",
    help="The API server in the pods' environment, where nothing routes the service's address.",
)
@click.option(
    "--kubelet-config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="A KubeletConfiguration: eviction, static pods, graceful node shutdown.",
)
@click.option(
    "--restart-command",
    default="",
    metavar="COMMAND",
    help="Restarts an engine that is no systemd service, for RuntimeInstallations.",
)
@log_level_option
def command(
    *,
    config: ClientConfig,
    cri: str,
    data_dir: Path,
    name: str | None,
    address: str | None,
    port: int,
    tls_cert: Path | None,
    tls_key: Path | None,
    client_ca: Path | None,
    callers: tuple[str, ...],
    cgroup_root: str,
    labels: tuple[str, ...],
    cluster_dns: tuple[str, ...],
    cluster_domain: str,
    pod_api_server: str | None,
    kubelet_config: Path | None,
    restart_command: str,
    log_level: str,
) -> None:
    """Run the node agent alone, in the foreground, for any Kubernetes API server.

    The kubeconfig's user is `system:node:NAME` of group `system:nodes`. Without --tls-cert,
    --tls-key and --client-ca the agent opens no port, and the API server cannot show logs. SIGTERM
    ends the agent; pods go on, and the next agent on the same directory takes them over.
    """
    socket_path("--cri", cri)
    files = (tls_cert, tls_key, client_ca)
    if any(files) and not all(files):
        raise click.UsageError("--tls-cert, --tls-key and --client-ca are given together")
    if factory().euid() != 0:
        raise CannotRunPodsError("a node agent needs root: run as root")
    layout, host = Layout(data_dir.absolute()), read_host()
    chosen, node_ip = node_name(name), address or host_ip()
    server = None
    if tls_cert and tls_key and client_ca:
        server = ServerOptions(
            certificate_file=tls_cert,
            key_file=tls_key,
            client_ca_file=client_ca,
            address=node_ip,
            port=port,
            api_server_names=frozenset(callers),
        )
    configuration = _configuration(kubelet_config)
    options = NodeOptions(
        name=chosen,
        node_ip=node_ip,
        hostname=chosen,
        labels=pairs("--node-label", labels),
        root_dir=layout.node,
        pod_logs_dir=layout.pod_logs,
        container_logs_dir=None,
        server=server,
        cgroup_root=cgroup_root,
        reserved=system_reserved(host.memory_bytes, host.max_pids),
        oom_score_floor=host.oom_score_floor,
        cluster_dns=cluster_dns,
        cluster_domain=cluster_domain,
        service_environment=_environment(pod_api_server),
        eviction=configuration.eviction,
        static_pod_path=configuration.static_pod_path,
        shutdown_periods=configuration.shutdown_periods,
        listeners=() if server is None else (Listener(f"agent of node {chosen}", node_ip, port),),
    )
    try:
        options.check()
    except OptionsError as error:
        raise click.UsageError(str(error)) from error
    restart = shlex.split(restart_command)
    run_until_stopped(
        partial(part.run, config, cri, layout.root, options, host, restart_command=restart),
        log_level,
    )


def _configuration(path: Path | None) -> NodeConfiguration:
    """Return the settings of a file. Raises UsageError."""
    if path is None:
        return NodeConfiguration()
    try:
        return load_configuration(path)
    except ConfigurationError as error:
        raise click.UsageError(str(error)) from error


def _environment(api_server: str | None) -> dict[str, str]:
    """Return the variables that name the API server to pods. Raises UsageError."""
    if api_server is None:
        return {}
    host, colon, port = api_server.rpartition(":")
    if not colon or not host or not port.isdigit():
        raise click.UsageError(f"--pod-api-server takes HOST:PORT, not {api_server!r}")
    return {
        "KUBERNETES_SERVICE_HOST": host.strip("[]"),
        "KUBERNETES_SERVICE_PORT": port,
        "KUBERNETES_SERVICE_PORT_HTTPS": port,
    }
