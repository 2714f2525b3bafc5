"""Command `moor detach`: removes from a Kubernetes cluster what `moor attach` installed."""

from __future__ import annotations

import sys
from collections import Counter

import click

from moorage.api.clock import SystemClock
from moorage.api.text import printable
from moorage.attach.detach_options import DetachOptions, Leftover
from moorage.attach.detachment import DetachPlan, detach, plan_detachment, shortened
from moorage.attach.manifests import DEFINITION
from moorage.attach.needed_rights import described
from moorage.attach.served_objects import name_of
from moorage.cli.connection import Target, connection_options
from moorage.cli.errors import CliError
from moorage.cli.interruption import interruptible
from moorage.cli.options import Seconds

USER_AGENT = "moor-detach"


@click.command("detach")
@click.option(
    "--remove-classes",
    is_flag=True,
    help="Remove the RuntimeClasses that Moorage made although pods use them; without it these "
    "stay, and are yours.",
)
@click.option(
    "--leave-runtimes",
    is_flag=True,
    help="Leave on the nodes what RuntimeInstallations installed there.",
)
@click.option(
    "--keep-definitions",
    is_flag=True,
    help="Keep the kinds of runtime.moorage.dev, with your policies and quotas.",
)
@click.option(
    "--remove-namespaces",
    is_flag=True,
    help="Remove the namespaces that were made for Moorage although others' objects are in them.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and change nothing.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option(
    "--timeout",
    "timeout_s",
    type=Seconds(min=1),
    default=300.0,
    show_default=True,
    help="Seconds that nodes may take to undo installations, and parts to end.",
)
@connection_options
def command(
    *,
    remove_classes: bool,
    leave_runtimes: bool,
    keep_definitions: bool,
    remove_namespaces: bool,
    dry_run: bool,
    yes: bool,
    timeout_s: float,
    target: Target,
) -> None:
    """Remove from a Kubernetes cluster everything that `moor attach` installed.

    Webhooks go first, so that no pod is held up; what RuntimeInstallations put on nodes is undone;
    running pods keep running. It says what it leaves and why. Run again, it goes on where it
    stopped.
    """
    options = DetachOptions(
        said=_say,
        removes_classes=remove_classes,
        leaves_runtimes=leave_runtimes,
        keeps_definitions=keep_definitions,
        removes_namespaces=remove_namespaces,
        timeout_s=timeout_s,
    )
    with interruptible() as interruptions:
        plan = interruptions.run(_plan(target))
        if plan.is_empty:
            click.echo("nothing of Moorage is attached")
            return
        if plan.missing_rights:
            raise CliError(
                f"nothing was changed: you may not {printable(described(plan.missing_rights))}; "
                "detach as an administrator of the cluster: a user with the ClusterRole "
                "cluster-admin"
            )
        show_plan(plan, options)
        if dry_run:
            return
        if not yes:
            _ask()
        left = interruptions.run(_detach(target, options))
    click.echo("detached")
    for leftover in left:
        click.echo(f"left: {printable(leftover.what)}: {printable(leftover.why)}")


async def _plan(target: Target) -> DetachPlan:
    async with target.client(USER_AGENT) as client:
        return await plan_detachment(client)


async def _detach(target: Target, options: DetachOptions) -> list[Leftover]:
    async with target.client(USER_AGENT) as client:
        return await detach(client, SystemClock(), options)


def _ask() -> None:
    if not sys.stdin.isatty():
        raise CliError("nothing was changed: give --yes without a terminal to ask on")
    if not click.confirm("Remove this?", err=True):
        raise CliError("nothing was changed")


def show_plan(plan: DetachPlan, options: DetachOptions) -> None:
    """Print what a detachment removes, and what stays."""
    staying = set() if options.removes_namespaces else plan.foreign.keys()
    in_use = {} if options.removes_classes else {k: n for k, n in plan.classes.items() if n}
    counts = Counter(
        obj["kind"]
        for obj in plan.objects
        if not (obj["kind"] == "Namespace" and obj["metadata"]["name"] in staying)
        and not (obj["kind"] == DEFINITION and options.keeps_definitions)
    )
    counts["RuntimeClass"] += len(plan.classes) - len(in_use)
    shown = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    click.echo(f"to remove: {shown or 'nothing'}")
    for name, uses in in_use.items():
        click.echo(
            f"RuntimeClass {printable(name)} stays, and is yours then: {printable(uses.sentence)}"
        )
    for obj in plan.installations:
        name = obj["metadata"]["name"]
        verb = "left on its nodes" if options.leaves_runtimes else "undone on its nodes"
        if (pods := plan.pods.get(name)) and not options.leaves_runtimes:
            verb += f" once these pods are deleted: {printable(', '.join(pods))}"
        click.echo(f"RuntimeInstallation {printable(name)}: {verb}")
    if plan.users_objects and not options.keeps_definitions:
        names = ", ".join(printable(name_of(obj)) for obj in plan.users_objects)
        click.echo(f"goes with the kinds, unless --keep-definitions is given: {names}", err=True)

    for namespace, foreign in plan.foreign.items():
        names = printable(shortened(foreign))
        if options.removes_namespaces:
            click.echo(f"goes with namespace {namespace}: {names}", err=True)
        else:
            click.echo(f"namespace {namespace} stays, for others' objects are in it: {names}")
    for release in plan.releases:
        click.echo(
            f"installed by Helm, whose record stays: afterwards run {printable(release.removal)}"
        )


def _say(text: str) -> None:
    click.echo(printable(text))
