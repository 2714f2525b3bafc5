"""Command `moor runtime-agent`: runs the runtime agent beside a kubelet that is not ours."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path

import click

from moorage.attach.processes import runtime_agent
from moorage.attach.processes.runtime_agent import AgentOptions
from moorage.cli.daemon import log_level_option, run_until_stopped, server_options
from moorage.cli.factory import factory
from moorage.cli.options import socket_path
from moorage.cluster.errors import CannotRunPodsError
from moorage.cluster.settings import node_name
from moorage.runtimes.probing.pod_carrier import NAMESPACE
from moorage.wire.client.config import ClientConfig


@click.command("runtime-agent")
@server_options
@click.option("--node-name", "name", help="The node's name in the API; the host's by default.")
@click.option(
    "--cri",
    metavar="ENDPOINT",
    default="",
    help="The kubelet's engine: unix:///path/to.sock; by default the only one at a usual path.",
)
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("/var/lib/moorage-agent"),
    show_default=True,
    help="Installed runtimes, and what probes found.",
)
@click.option(
    "--probe-image",
    default="",
    metavar="IMAGE",
    help="Image with the probes' programs that the node has, as the agent's own; by default one is "
    "made and imported into the engine.",
)
@click.option(
    "--probe-namespace",
    default=NAMESPACE,
    show_default=True,
    help="Namespace of the probes' pods, which must exist and allow privileged ones.",
)
@click.option(
    "--install/--no-install",
    "installs",
    default=True,
    show_default=True,
    help="Follow RuntimeInstallations: write the engine's configuration and restart it.",
)
@click.option(
    "--restart-command",
    default="",
    metavar="COMMAND",
    help="Restarts the engine, by a program of the host; by default systemd restarts its service.",
)
@click.option(
    "--remove-data",
    is_flag=True,
    help="Remove the data directory and wait to be ended, as `moor detach` has it done; runtimes "
    "that are installed stay.",
)
@click.option(
    "--health-port",
    type=click.IntRange(1, 65535),
    default=8081,
    show_default=True,
    help="With --remove-data: port whose /readyz answers over HTTP once the directory is gone.",
)
@log_level_option
def command(
    *,
    config: ClientConfig,
    name: str | None,
    cri: str,
    data_dir: Path,
    probe_image: str,
    probe_namespace: str,
    installs: bool,
    restart_command: str,
    remove_data: bool,
    health_port: int,
    log_level: str,
) -> None:
    """Run the runtime agent in the foreground, beside a kubelet of any Kubernetes.

    It finds the kubelet's engine, runs a probe pod of each handler, and reports which work and
    what each supports: RuntimeProfiles, labels of its own node under runtime.moorage.dev, events.
    It installs what RuntimeInstallations ask for. In a container it needs the host's process IDs
    and the host's directories at the same paths. SIGTERM ends it; nothing else changes.
    """
    if cri:
        socket_path("--cri", cri)
    if factory().euid() != 0:
        raise CannotRunPodsError("a runtime agent needs root, which engines' sockets are open to")
    if remove_data:
        # Its HTTP server takes 3 MB, which an agent on each node does without.
        from moorage.attach.processes import data_removal

        removal = data_removal.RemovalOptions(
            data_dir=data_dir.absolute(), cri=cri, enters_host=installs, health_port=health_port
        )
        run_until_stopped(partial(data_removal.run, removal), log_level)
        return
    options = AgentOptions(
        node=node_name(name),
        data_dir=data_dir.absolute(),
        cri=cri,
        probe_image=probe_image,
        probe_namespace=probe_namespace,
        installs_runtimes=installs,
        restart_command=tuple(shlex.split(restart_command)),
    )
    run_until_stopped(partial(runtime_agent.run, config, options), log_level)
