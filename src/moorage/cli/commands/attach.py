"""Command `moor attach`: installs Moorage on a Kubernetes cluster that is there already."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from moorage.api.clock import SystemClock
from moorage.api.text import counted, printable
from moorage.api.yaml_text import dump
from moorage.attach.attachment import Plan, attach, plan_attachment
from moorage.attach.changes import Change, Verb
from moorage.attach.installation import InstallationOptions
from moorage.attach.manifests import objects
from moorage.attach.outcome import Outcome
from moorage.attach.progress import PartProgress
from moorage.attach.served_objects import name_of
from moorage.attach.survey import SurveyFinding
from moorage.attach.values import Values
from moorage.attach.values_input import read_values
from moorage.cli.connection import Target, connection_options
from moorage.cli.errors import CliError
from moorage.cli.interruption import interruptible
from moorage.cli.options import Seconds
from moorage.cli.output import has_colour, outcome_table

USER_AGENT = "moor-attach"
_COLOURS = {"+": "green", "-": "red", "@": "cyan"}
_LONG_DIFF = 60


@click.command("attach")
@click.option(
    "--values",
    "files",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    multiple=True,
    help="File of values, under the names of the chart's values.yaml; repeatable.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="PATH=VALUE",
    help="One value, such as webhook.replicas=3; its value is YAML; repeatable.",
)
@click.option("--image", metavar="IMAGE", help="The same as --set image=IMAGE.")
@click.option("--print", "prints", is_flag=True, help="Print the manifests; no cluster is asked.")
@click.option(
    "--chart",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIRECTORY",
    help="Write the Helm chart of the same objects; no cluster is asked.",
)
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@click.option("--full", is_flag=True, help="Show new objects whole, not as a line each.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option(
    "--timeout",
    "timeout_s",
    type=Seconds(min=1),
    default=300.0,
    show_default=True,
    help="Time that the parts may take to start: seconds, or such as 5m.",
)
@connection_options
def command(
    *,
    files: tuple[Path, ...],
    settings: tuple[str, ...],
    image: str | None,
    prints: bool,
    chart: Path | None,
    dry_run: bool,
    full: bool,
    yes: bool,
    timeout_s: float,
    target: Target,
) -> None:
    """Install Moorage on a Kubernetes cluster that is there already, as an add-on.

    It looks at the cluster, shows what it would create or change, asks, installs, waits, and says
    which handlers work on which nodes. Run again, it brings everything to the values given then.
    `moor detach` removes it.
    """
    if image is not None:
        settings = (*settings, f"image={image}")
    if chart is not None:
        from moorage.attach.chart import write_chart

        if files or settings:
            raise click.UsageError("--chart takes no values: they are given to Helm")
        for path in write_chart(chart):
            click.echo(f"wrote {path}")
        return
    values = read_values(files, settings)
    if prints:
        click.echo("---\n".join(dump(obj) for obj in objects(values)), nl=False)
        return
    with interruptible() as interruptions:
        plan = interruptions.run(_plan(target, values))
        _show_plan(plan, full=full)
        if not plan.is_possible:
            raise CliError("nothing was changed: solve the problems above and run it again")
        if dry_run:
            return
        if plan.changing and not yes:
            _ask()
        interruptions.run(_install(target, plan, timeout_s))


async def _plan(target: Target, values: Values) -> Plan:
    async with target.client(USER_AGENT) as client:
        return await plan_attachment(client, values)


async def _install(target: Target, plan: Plan, timeout_s: float) -> None:
    options = InstallationOptions(said=_say, progress=ProgressLines().show, timeout_s=timeout_s)
    async with target.client(USER_AGENT) as client:
        _show_outcome(await attach(client, plan, SystemClock(), options))


def _ask() -> None:
    if not sys.stdin.isatty():
        raise CliError("nothing was changed: give --yes without a terminal to ask on")
    if not click.confirm("Install this?", err=True):
        raise CliError("nothing was changed")


def _show_plan(plan: Plan, *, full: bool) -> None:
    engines = sorted({node.engine for node in plan.survey.nodes if node.engine})
    click.echo(
        f"{plan.survey.server}: Kubernetes {printable(plan.survey.version)}, "
        f"{counted(len(plan.survey.nodes), 'node')}"
        + (f" with {printable(', '.join(engines))}" if engines else "")
    )
    for finding in plan.findings:
        _show_finding(finding)
    if not plan.is_possible:
        return
    for change in plan.changing:
        _show_change(change, full=full)
    counts = [
        f"{sum(change.verb is verb for change in plan.changes)} to {verb}"
        for verb in Verb
        if any(change.verb is verb for change in plan.changes)
    ]
    click.echo(f"objects: {', '.join(counts)}")


def _show_finding(finding: SurveyFinding) -> None:
    click.echo(f"{finding.level}: {printable(finding.text)}", err=True)
    if finding.remedy:
        click.echo(f"  → {printable(finding.remedy)}", err=True)


def _show_change(change: Change, *, full: bool) -> None:
    click.echo(f"{change.verb} {printable(name_of(change.obj))}")
    if change.verb is not Verb.CHANGE and not full:
        return
    lines = change.diff.removesuffix("\n").split("\n")
    for line in lines if full else lines[:_LONG_DIFF]:
        colour = _COLOURS.get(line[:1]) if has_colour() else None
        shown = printable(line, keep="\t")
        click.echo(click.style(shown, fg=colour) if colour else shown)
    if not full and len(lines) > _LONG_DIFF:
        click.echo(f"… {len(lines) - _LONG_DIFF} lines more: --full shows them")


def _say(text: str) -> None:
    click.echo(printable(text))


class ProgressLines:
    """Lines of progress: one for each change of a part, its reasons once."""

    def __init__(self) -> None:
        self._known: dict[str, PartProgress] = {}
        self._shown: set[tuple[str, str]] = set()

    def show(self, parts: Sequence[PartProgress]) -> None:
        """Print what has changed since the last call."""
        for part in parts:
            known = self._known.get(part.name)
            self._known[part.name] = part
            if known is None or (known.ready, known.desired) != (part.ready, part.desired):
                click.echo(f"{part.name}: {part.ready} of {part.desired} pods are ready")
            # A pull that fails goes between two reasons, which have one remedy.
            for reason in part.reasons:
                for text, mark in ((reason.text, ""), (reason.remedy, "→ ")):
                    if text and (part.name, text) not in self._shown:
                        self._shown.add((part.name, text))
                        click.echo(f"  {mark}{printable(text)}")


def _show_outcome(outcome: Outcome) -> None:
    if not outcome.nodes:
        click.echo("attached; the cluster has no nodes yet")
        return
    click.echo("attached")
    click.echo(outcome_table(outcome))
