"""`moor up`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from moorage.cli.errors import CannotRunPodsError, CliError
from moorage.cli.interruption import interruptible
from moorage.cli.machine import look
from moorage.cli.options import (
    LOG_LEVELS,
    data_dir_option,
    layout_of,
    mirror_option,
    pairs,
    socket_path,
)
from moorage.cluster import kubeconfig
from moorage.cluster.creation import Choices, access, open_cluster
from moorage.cluster.doctor import State, can_run_pods, examine
from moorage.cluster.layout import Layout
from moorage.cluster.life import StartError, start_detached
from moorage.cluster.network import NoSubnetError, SubnetTakenError
from moorage.cluster.settings import Settings, SettingsError, load
from moorage.cluster.supervise import become_supervisor, usage
from moorage.cluster.supervisor import COMPLETE, AlreadyRunningError, running_pid
from moorage.handlers import Handler

USER_KUBECONFIG = Path.home() / ".kube" / "config"
_READY_S = 60.0


def _gates(texts: tuple[str, ...]) -> dict[str, bool]:
    known = {"true": True, "false": False}
    found = {}
    for key, value in pairs("--feature-gate", texts).items():
        if key != "RuntimeClass" or value.lower() not in known:
            raise click.UsageError(
                f"--feature-gate {key}={value}: the gate is RuntimeClass, its value true or false"
            )
        found[key] = known[value.lower()]
    return found


@click.command("up")
@data_dir_option
@click.option("--detach", "-d", is_flag=True, help="Return when the cluster is ready.")
@click.option("--merge", is_flag=True, help=f"Add the cluster to {USER_KUBECONFIG} too.")
@click.option("--install", is_flag=True, help="Install missing Debian packages first.")
@click.option(
    "--node/--no-node",
    "node",
    default=None,
    help="With a node, or the control plane alone, which needs no root.",
)
@click.option("--cri", metavar="ENDPOINT", help="Use a running engine: unix:///path/to.sock.")
@click.option("--name", help="The cluster's name in the kubeconfig.")
@click.option("--node-name", help="The node's name; the host's by default.")
@click.option("--api-port", type=click.IntRange(1, 65535), help="The API's port; 6443 if free.")
@click.option("--node-port", type=click.IntRange(1, 65535), help="The node agent's port.")
@click.option("--pod-network", metavar="CIDR", help="The pods' addresses; a free /24 by default.")
@click.option("--service-network", metavar="CIDR", help="The services' addresses.")
@mirror_option
@click.option(
    "--feature-gate",
    "gates",
    multiple=True,
    metavar="NAME=BOOL",
    help="Turn a feature off or on: RuntimeClass.",
)
@click.option(
    "--schedule-by-handler/--scheduler-like-upstream",
    "by_handler",
    default=None,
    help="Keep pods off nodes that lack their handler, or let them fail there as Kubernetes does.",
)
@click.option("--log-level", type=click.Choice(LOG_LEVELS), help="For all parts.")
def command(
    data_dir: Path,
    *,
    detach: bool,
    merge: bool,
    install: bool,
    node: bool | None,
    cri: str | None,
    mirrors: tuple[str, ...],
    gates: tuple[str, ...],
    by_handler: bool | None,
    **said: str | int | None,
) -> None:
    """Start the cluster, or resume the one in the data folder with everything that is in it.

    Stays in the foreground until Ctrl-C, which leaves pods running for the next `moor up`;
    `moor down` ends them too.
    """
    if cri is not None:
        socket_path("--cri", cri)
    layout = layout_of(data_dir)
    pid = running_pid(layout)
    if pid is not None:
        raise CliError(str(AlreadyRunningError(layout, pid)))
    choices = Choices(
        cri=cri,
        has_node=node,
        filters_by_handler=by_handler,
        gates=_gates(gates),
        registry_mirrors=pairs("--registry-mirror", mirrors),
        **said,  # type: ignore[arg-type]
    )
    before = load(layout.settings)
    has_node = (before is None or before.has_node) if node is None else node
    if has_node and not (cri or (before and before.cri)):
        asyncio.run(prepare_machine(layout, is_installing=install))
    settings = opened(layout, choices)
    if merge:
        kubeconfig.merge(USER_KUBECONFIG, access(layout, settings))
    if detach:
        _start_detached(layout)
        click.echo(usage(layout, settings, str(USER_KUBECONFIG) if merge else ""))
        return

    become_supervisor(layout, str(USER_KUBECONFIG) if merge else "")


async def prepare_machine(layout: Layout, *, is_installing: bool) -> tuple[Handler, ...]:
    """Install what is missing if that was asked for; the machine's handlers.

    Raises CannotRunPodsError when something that pods need is still missing.
    """
    host, handlers = await look(layout, is_installing=is_installing)
    findings = examine(host, handlers)
    if not can_run_pods(findings):
        problems = "".join(
            f"\n  {each.subject}: {each.meaning}" + (f" → {each.remedy}" if each.remedy else "")
            for each in findings
            if each.state is State.PROBLEM
        )
        raise CannotRunPodsError(
            f"this machine cannot run pods:{problems}\n"
            "`moor up --install` installs missing packages on Debian; "
            "`moor up --no-node` starts the control plane alone, which needs nothing of this"
        )
    return handlers


def opened(layout: Layout, choices: Choices) -> Settings:
    """The settings of the cluster, made if absent. Raises CliError."""
    try:
        return open_cluster(layout, choices)
    except (SettingsError, NoSubnetError, SubnetTakenError, AlreadyRunningError) as error:
        raise CliError(str(error)) from error


def _start_detached(layout: Layout) -> None:
    try:
        with interruptible() as interruptions:
            start_detached(layout, _READY_S, interruptions.later())
    except StartError as error:
        raise CliError(str(error)) from error
    click.echo(COMPLETE)
