"""Command group `moor rollout`: moves workloads from one RuntimeClass to another."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import click
import msgspec

from moorage.api.durations import parse_duration
from moorage.api.labels import parse as parse_selector
from moorage.api.meta import Raw
from moorage.api.runtime_rollouts import DONE, ROLLED_BACK, RuntimeRollout
from moorage.cli.connection import Target, connection_options
from moorage.cli.errors import CliError
from moorage.cli.output import output_option, show, show_document
from moorage.cli.rollouts import LiveView, document_of, lines_of, row_of
from moorage.cli.verbs import VerbGroup
from moorage.runtimes import rollouts
from moorage.wire.client.rest import Client

_NAME_LABEL = "kubernetes.io/metadata.name"
_COLUMNS = ("name", "from", "to", "phase", "wave", "moved", "failed", "created")
_name = click.argument("name", required=False)
_watch = click.option("--watch", "-w", "is_watching", is_flag=True, help="Follow it to its end.")


@click.group("rollout", cls=VerbGroup)
def command() -> None:
    """Move workloads from one RuntimeClass to another, by waves."""


@command.command("start")
@click.option("--from", "from_", required=True, metavar="CLASS", help="Class of the workloads.")
@click.option("--to", required=True, metavar="CLASS", help="Class that they get.")
@click.option("--name", help="Name of the rollout; FROM-to-TO by default.")
@click.option(
    "--namespace", "-n", "namespaces", multiple=True, help="Namespace of the workloads; repeatable."
)
@click.option("--namespace-selector", metavar="SELECTOR", help="Labels of the namespaces.")
@click.option("--selector", "-l", metavar="SELECTOR", help="Labels of the workloads.")
@click.option("--canary", metavar="COUNT", help="Workloads of the first wave: 1, or 5%. [1]")
@click.option("--wave", metavar="COUNT", help="Workloads of each further wave. [25%]")
@click.option("--max-restarts", type=click.IntRange(0), help="Restarts of one pod. [3]")
@click.option("--ready-within", metavar="DURATION", help="Time for the next ready pod. [10m]")
@click.option("--max-start-latency", metavar="DURATION", help="Time from scheduled to ready.")
@click.option(
    "--max-failures", type=click.IntRange(0, 100), help="Percentage of moved workloads. [0]"
)
@click.option(
    "--on-failure",
    type=click.Choice(["pause", "rollback"]),
    help="What happens when a gate does not hold. [pause]",
)
@click.option("--paused", is_flag=True, help="Create it paused: nothing moves before a resume.")
@_watch
@connection_options
@output_option
def start(
    *,
    from_: str,
    to: str,
    name: str | None,
    namespaces: tuple[str, ...],
    namespace_selector: str | None,
    is_watching: bool,
    target: Target,
    output: str,
    **options: Any,
) -> None:
    """Start a rollout: a canary first, then waves, each when all before it is ready."""
    if namespaces and namespace_selector is not None:
        raise click.UsageError("give --namespace or --namespace-selector, not both")
    if namespaces:
        namespace_selector = f"{_NAME_LABEL} in ({','.join(namespaces)})"
    spec = {"from": from_, "to": to, **_spec(namespace_selector=namespace_selector, **options)}

    async def begin(client: Client) -> None:
        chosen = name or rollouts.default_name(from_, to, namespaces)
        made = await rollouts.start(client, chosen, spec)
        await _report(client, made, "started", output, is_watching=is_watching)

    _run(begin, target)


@command.command("status")
@_name
@_watch
@connection_options
@output_option
def status(
    name: str | None,
    target: Target,
    *,
    is_watching: bool,
    output: str,
) -> None:
    """Show how far a rollout is. With --watch, exit status 1 unless it completes."""

    async def report(client: Client) -> None:
        rollout = await rollouts.find(client, name)
        if is_watching:
            await _follow(client, rollout.metadata.name, output)
        elif output == "table":
            click.echo("\n".join(lines_of(rollout, datetime.now(UTC))))
        else:
            show_document(document_of(rollout), output)

    _run(report, target)


@command.command("list")
@connection_options
@output_option
def list_(target: Target, *, output: str) -> None:
    """List the rollouts."""

    async def report(client: Client) -> None:
        found = await rollouts.list_rollouts(client)
        show([row_of(rollout) for rollout in found], _COLUMNS, output)

    _run(report, target)


@command.command("pause")
@_name
@connection_options
def pause(name: str | None, target: Target) -> None:
    """Stop further moves; what has been moved stays."""
    _run(_changing(name, rollouts.pause, "paused"), target)


@command.command("resume")
@_name
@connection_options
def resume(name: str | None, target: Target) -> None:
    """Go forward after a pause, after gates have stopped it, or after a rollback."""

    async def change(client: Client, chosen: str) -> RuntimeRollout:
        return await rollouts.resume(client, chosen, datetime.now(UTC))

    _run(_changing(name, change, "resumed"), target)


@command.command("back")
@_name
@_watch
@connection_options
@output_option
def back(name: str | None, target: Target, *, is_watching: bool, output: str) -> None:
    """Give every workload that was moved its class back."""

    async def change(client: Client) -> None:
        chosen = (await rollouts.find(client, name)).metadata.name
        changed = await rollouts.roll_back(client, chosen)
        await _report(
            client, changed, "goes back", output, is_watching=is_watching, wanted=ROLLED_BACK
        )

    _run(change, target)


@command.command("delete")
@click.argument("name")
@connection_options
def delete(name: str, target: Target) -> None:
    """Delete a rollout; workloads keep the class that they have now."""

    async def remove(client: Client) -> None:
        await rollouts.find(client, name)
        await rollouts.delete(client, name)
        click.echo(f"rollout {name} deleted")

    _run(remove, target)


def _run(
    work: Callable[[Client], Awaitable[None]],
    target: Target,
) -> None:
    async def connected() -> None:
        async with target.client("moor-rollout") as client:
            await work(client)

    asyncio.run(connected())


def _changing(
    name: str | None, change: Callable[[Client, str], Awaitable[RuntimeRollout]], past: str
) -> Callable[[Client], Awaitable[None]]:
    async def work(client: Client) -> None:
        chosen = (await rollouts.find(client, name)).metadata.name
        await change(client, chosen)
        click.echo(f"rollout {chosen} {past}")

    return work


async def _report(
    client: Client,
    rollout: RuntimeRollout,
    past: str,
    output: str,
    *,
    is_watching: bool,
    wanted: str = DONE,
) -> None:
    """Print what was done to a rollout, and follow it if that is wanted. Raises like `_follow`."""
    name = rollout.metadata.name
    if output == "table":
        click.echo(f"rollout {name} {past}")
    elif not is_watching:
        show_document(document_of(rollout), output)
    if is_watching:
        await _follow(client, name, output, wanted=wanted)


async def _follow(client: Client, name: str, output: str, wanted: str = DONE) -> None:
    """Show a rollout until it ends. Raises CliError if it ends in another phase than `wanted`."""
    view = LiveView()
    async for rollout in rollouts.follow(client, name):
        if output == "table":
            view.draw(rollout, datetime.now(UTC))
        else:
            click.echo(msgspec.json.encode(document_of(rollout)).decode())
        if rollouts.has_ended(rollout):
            phase = rollout.status.phase
            if phase != wanted:
                raise CliError(f"rollout {name} ended in phase {phase}")
            return
    raise CliError(f"rollout {name} was deleted")


def _spec(
    *,
    namespace_selector: str | None,
    selector: str | None,
    canary: str | None,
    wave: str | None,
    max_restarts: int | None,
    ready_within: str | None,
    max_start_latency: str | None,
    max_failures: int | None,
    on_failure: str | None,
    paused: bool,
) -> Raw:
    """Return the specification of the options that are given; others have the API's defaults."""
    gates = {
        "maxRestarts": max_restarts,
        "readyWithinSeconds": _seconds("--ready-within", ready_within),
        "maxStartLatencySeconds": _seconds("--max-start-latency", max_start_latency),
        "maxFailurePercent": max_failures,
    }
    spec = {
        "namespaceSelector": _selector("--namespace-selector", namespace_selector),
        "workloadSelector": _selector("--selector", selector),
        "canary": _count(canary),
        "waveSize": _count(wave),
        "gates": {key: value for key, value in gates.items() if value is not None} or None,
        "onFailure": on_failure.capitalize() if on_failure else None,
        "paused": paused or None,
    }
    return {key: value for key, value in spec.items() if value is not None}


def _count(text: str | None) -> int | str | None:
    """Return a number as a number; the API checks any other text."""
    return int(text) if text is not None and text.isascii() and text.isdigit() else text


def _seconds(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        seconds = int(parse_duration(text).total_seconds())
    except ValueError as error:
        raise click.UsageError(f"{name}: {error}; write 90s or 5m") from error
    if seconds < 1:
        raise click.UsageError(f"{name}: {text} is less than a second")
    return seconds


def _selector(name: str, text: str | None) -> Raw | None:
    if text is None:
        return None
    try:
        return rollouts.label_selector(parse_selector(text))
    except ValueError as error:
        raise click.UsageError(f"{name}: {error}") from error
