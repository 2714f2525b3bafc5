"""Command `moor runtimes`: lists the runtime handlers, and the features of each."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import click
import msgspec
from click.core import ParameterSource

from moorage.api.errors import NotFoundError, StatusError
from moorage.api.runtime_group import RuntimeProfile
from moorage.api.text import printable
from moorage.cli.connection import Target, connection_options
from moorage.cli.errors import CliError
from moorage.cli.factory import factory
from moorage.cli.handlers import HandlersInUse, with_problems
from moorage.cli.output import outcome_table, output_option, show, show_document, table
from moorage.cli.verbs import VerbGroup
from moorage.cluster.layout import Layout
from moorage.cluster.settings import load
from moorage.cluster.supervision.supervisor import running_pid
from moorage.engine.handlers import Handler
from moorage.inspect.runtime_features import (
    FeatureColumn,
    columns,
    probed_here,
    problem_of,
    rows,
    short,
)
from moorage.runtimes.probing.cache import ProbedHandler

if TYPE_CHECKING:
    from moorage.attach.outcome import Outcome

_NOT_SERVED = (
    "the API does not serve RuntimeProfiles (yet): on a Kubernetes of others, `moor attach` "
    "installs what reports them"
)
_API_DEADLINE_S = 5.0
_COLUMNS = ("handler", "runtime", "version", "default", "available", "features")


@click.group("runtimes", cls=VerbGroup, invoke_without_command=True)
@click.option("--all", "shows_all", is_flag=True, help="Include runtimes that are not installed.")
@connection_options
@output_option
@click.pass_context
def command(context: click.Context, target: Target, *, shows_all: bool, output: str) -> None:
    """List the runtime handlers, and why some cannot be used.

    While a cluster runs on its own engine they are the engine's, with the files that define them;
    faults of those files are reported too. With --cri they are those that the engine lists.
    Otherwise they are those found on this machine. Of another Kubernetes they are those that the
    runtime agents of its nodes report.
    """
    if context.invoked_subcommand is not None:
        _refuse_options(context)
        return
    if target.cluster is None:
        if shows_all:
            raise click.UsageError("--all is for this machine: leave it out for another Kubernetes")
        _show_elsewhere(asyncio.run(_outcome(target)), output)
        return
    in_use = asyncio.run(_with_probes(target, target.cluster.layout))
    shown = [
        handler for handler in in_use.handlers if shows_all or handler.path or handler.available
    ]
    rows = [msgspec.to_builtins(handler) for handler in shown]
    show(rows, _columns(in_use), output, notes=[_notes(handler) for handler in shown])
    for complaint in in_use.complaints:
        # To standard error, so that JSON stays JSON.
        click.echo(f"broken: {complaint}", err=True)


def _refuse_options(context: click.Context) -> None:
    """Refuse options before the subcommand, which has its own. Raises UsageError."""
    for parameter in context.command.params:
        name = parameter.name or ""
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(
                f"give {parameter.opts[-1]} behind {context.invoked_subcommand}", context
            )


def _show_elsewhere(outcome: Outcome, output: str) -> None:
    if output != "table":
        show_document(outcome, output)
    elif outcome.nodes:
        click.echo(outcome_table(outcome))
    else:
        click.echo("the cluster has no nodes", err=True)


async def _outcome(target: Target) -> Outcome:
    """Return another Kubernetes' handlers by node. Raises CliError without our definitions."""
    async with target.client("moor-runtimes") as client:
        try:
            return await factory().read_outcome(client)
        except NotFoundError as error:
            raise CliError(_NOT_SERVED) from error


@command.command("features")
@click.option("--evidence", "shows_evidence", is_flag=True, help="Show what each probe found.")
@connection_options
@output_option
def features(target: Target, *, shows_evidence: bool, output: str) -> None:
    """Print which features each runtime handler was found to support, by running it.

    A handler has a column for each node where its nodes differ. With --evidence the finding of each
    feature is printed, and the output of each probe if this machine's node made them.
    """
    found = columns(asyncio.run(_profiles(target)))
    if output != "table":
        show_document([msgspec.to_builtins(column) for column in found], output)
        return
    if not found:
        click.echo("no handler has been probed yet: wait a moment", err=True)
        return
    for column in found:
        if column.problem:
            click.echo(f"{column.title} does not work: {printable(column.problem)}", err=True)
    if waiting := [one.title for one in found if not (one.features or one.problem)]:
        click.echo(f"not probed yet, which takes a minute: {', '.join(waiting)}", err=True)
    matrix = rows(found)
    notes = [_findings(found, row["feature"]) for row in matrix] if shows_evidence else ()
    titles = ("feature", *(column.title for column in found))
    click.echo(table([short(row) for row in matrix], titles, notes))
    for name in ("isolation", "kernel"):
        values = (f"{column.title}: {getattr(column, name) or 'unknown'}" for column in found)
        click.echo(f"{name}  {'; '.join(values)}")
    if shows_evidence:
        for probed in probed_here(column.handler for column in found):
            _print_probes(probed)


async def _profiles(target: Target) -> tuple[RuntimeProfile, ...]:
    # Imported here: the list of a machine without a cluster needs no client.
    from moorage.wire.client.resources import RUNTIME_PROFILES

    async with target.client("moor-runtimes") as client:
        try:
            return tuple((await client.list(RUNTIME_PROFILES)).items)
        except NotFoundError as error:
            raise CliError(_NOT_SERVED) from error


def _findings(found: Sequence[FeatureColumn], feature: str) -> list[str]:
    return [
        f"{column.title}: {column.features[feature].message}"
        for column in found
        if feature in column.features and column.features[feature].message
    ]


def _print_probes(probed: ProbedHandler) -> None:
    for name, record in probed.probes.items():
        click.echo(f"\n--- {probed.handler}, probe {name}: {record.outcome} {record.exit_code}")
        for text in (record.error, record.output.rstrip()):
            if text:
                click.echo(printable(text, keep="\n\t"))


def _notes(handler: Handler) -> list[str]:
    """Return the lines below a handler's row: its file, and why it cannot be used."""
    notes = [handler.file] if handler.file else []
    for reason, remedy in (
        (handler.reason, handler.remedy),
        (handler.defect, handler.defect_remedy),
    ):
        if reason:
            notes.append(f"{reason} → {remedy}" if remedy else reason)
    return notes


async def _ask(layout: Layout) -> HandlersInUse:
    settings = load(layout.settings)
    if settings is not None and settings.has_node and settings.cri:
        return await factory().handlers_in_use(layout, ())
    _, handlers = await factory().inspect_machine(layout)
    return await factory().handlers_in_use(layout, handlers)


async def _with_probes(target: Target, layout: Layout) -> HandlersInUse:
    """Return the handlers; one whose probe fails in the running cluster is not available."""
    in_use, settings = await _ask(layout), load(layout.settings)
    if settings is None or not settings.has_node or running_pid(layout) is None:
        return in_use
    # Imported here: the list of a machine without a cluster needs no client.
    from moorage.wire.client.config import ConfigError

    try:
        async with asyncio.timeout(_API_DEADLINE_S):
            profiles = await _profiles(target)
    except (CliError, StatusError, ConfigError, OSError):
        # What the engine says is listed without the API, too.
        return in_use
    problems = {
        profile.spec.handler: problem
        for profile in profiles
        if profile.spec.node_name == settings.node_name and (problem := problem_of(profile))
    }
    return replace(in_use, handlers=with_problems(in_use.handlers, problems))


def _columns(in_use: HandlersInUse) -> tuple[str, ...]:
    """Return the columns that have values: an external engine lists names and features only."""
    if in_use.handlers and not any(handler.runtime for handler in in_use.handlers):
        return ("handler", "default", "available", "features")
    if any(handler.file for handler in in_use.handlers):
        return _COLUMNS
    return tuple(column for column in _COLUMNS if column != "default")
