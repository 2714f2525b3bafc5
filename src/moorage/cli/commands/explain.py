"""Command `moor explain`: prints where a pod or a workload runs, or why it does not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

import click

from moorage.api.text import printable
from moorage.cli.completion import complete_namespaces, complete_pods
from moorage.cli.connection import Target, connection_options
from moorage.cli.errors import CliError
from moorage.cli.factory import factory
from moorage.cli.output import output_option, show_document
from moorage.cluster import Cluster, Settings
from moorage.engine.handlers import Handler
from moorage.inspect.explain import NodeAnswer, PodExplanation
from moorage.inspect.explain_workload import (
    WORKLOADS,
    PodGroup,
    WorkloadExplanation,
    explain_workload,
)
from moorage.node.paths import NodePaths
from moorage.node.pods.handler_choice import HandlerRecords
from moorage.wire.client.resources import Resource

T = TypeVar("T", PodExplanation, WorkloadExplanation)

_KINDS = ("pod", "pods", "po")


@click.command("explain")
@click.argument("subject", metavar="KIND/NAME", shell_complete=complete_pods)
@click.argument("after", metavar="", required=False)
@click.option(
    "--namespace",
    "-n",
    default="default",
    show_default=True,
    shell_complete=complete_namespaces,
)
@connection_options
@output_option
def command(
    subject: str, after: str | None, namespace: str, target: Target, *, output: str
) -> None:
    """Explain why a pod or a workload is as it is, or why it does not run.

    KIND NAME does as well. KIND is pod, deployment, replicaset, replicationcontroller,
    statefulset, daemonset, job or cronjob. Prints its class and handler, the objections of the
    nodes, its containers or its pods by state, exits, slow starts and refused probes, and its
    events.
    """
    if after is not None and "/" not in subject:
        # As kubectl takes it too: KIND NAME.
        subject, after = f"{subject}/{after}", None
    kind, slash, name = subject.partition("/")
    if not slash:
        kind, name = _KINDS[0], subject
    if (kind not in _KINDS and kind not in WORKLOADS) or not name or after is not None:
        raise click.UsageError(
            f"pods and workloads can be explained: pod/NAME, deployment/NAME, not {subject!r}"
        )
    if kind in WORKLOADS:
        workload = asyncio.run(_ask_workload(target, WORKLOADS[kind], namespace, name))
        _show(workload, _print_workload, output)
    else:
        _show(asyncio.run(_ask(target, namespace, name)), _print, output)


def _show(answer: T, printed: Callable[[T], None], output: str) -> None:
    if output == "table":
        printed(answer)
    else:
        show_document(asdict(answer), output)


@dataclass(frozen=True, slots=True)
class _Local:
    """What only this machine knows of a cluster: its handlers, and which one each pod was given.

    filters_by_handler: whether the scheduler keeps pods off nodes that lack their handler.
    """

    filters_by_handler: bool = False
    handlers: tuple[Handler, ...] = ()
    records: HandlerRecords | None = None


async def _local(cluster: Cluster | None) -> _Local:
    """Return this machine's facts; none of another Kubernetes, whose scheduler is its own."""
    if cluster is None:
        return _Local()
    settings, layout = cluster.settings, cluster.layout
    return _Local(
        settings.filters_by_handler,
        await _local_handlers(cluster, settings),
        HandlerRecords(NodePaths(layout.node, layout.pod_logs)),
    )


async def _ask(target: Target, namespace: str, name: str) -> PodExplanation:
    async with target.client("moor-explain") as client:
        local = await _local(target.cluster)
        return await factory().explain_pod(
            client,
            namespace,
            name,
            filters_by_handler=local.filters_by_handler,
            now=datetime.now(UTC),
            local_handlers=local.handlers,
            records=local.records,
        )


async def _ask_workload(
    target: Target, resource: Resource[Any], namespace: str, name: str
) -> WorkloadExplanation:
    async with target.client("moor-explain") as client:
        local = await _local(target.cluster)
        return await explain_workload(
            client,
            resource,
            namespace,
            name,
            filters_by_handler=local.filters_by_handler,
            now=datetime.now(UTC),
            local_handlers=local.handlers,
        )


async def _local_handlers(cluster: Cluster, settings: Settings) -> tuple[Handler, ...]:
    layout = cluster.layout
    _, handlers = await factory().inspect_machine(layout) if settings.has_node else (None, ())
    try:
        return tuple((await factory().handlers_in_use(layout, handlers)).handlers)
    except CliError:
        # The node's status already reports an engine that does not answer.
        return ()


def _print_workload(answer: WorkloadExplanation) -> None:
    _echo(f"{answer.workload}: {answer.verdict}")
    click.echo()
    _echo(f"class      {answer.runtime_class}")
    if answer.choice:
        _echo(f"choice     {answer.choice}")
    if answer.start:
        _echo(f"start      {answer.start}")
    _section("what stops it", answer.obstacles)
    _section("pods", [line for group in answer.groups for line in _group_lines(group)])
    nodes = [f"{node.node}: {objection}" for node in answer.nodes for objection in node.objections]
    _section("nodes", nodes)
    _section("what to do", answer.remedies)
    _section("events", answer.events)


def _group_lines(group: PodGroup) -> list[str]:
    more = group.count - len(group.names)
    names = ", ".join(group.names) + (f" and {more} more" if more else "")
    return [f"{group.count} {group.state}: {names}", *(f"  {text}" for text in group.findings)]


def _print(answer: PodExplanation) -> None:
    _echo(f"pod {answer.pod} {answer.verdict}")
    click.echo()
    overhead = ", ".join(f"{name} {value}" for name, value in answer.overhead.items())
    _echo(f"class      {answer.runtime_class}")
    _echo(f"handler    {answer.handler}")
    if answer.choice:
        _echo(f"choice     {answer.choice}")
    if overhead:
        click.echo(f"overhead   {overhead}, added to the containers' requests")
    click.echo(f"node       {answer.node or '-'}")
    _section("nodes", [line for node in answer.nodes for line in _node_lines(node, answer)])
    _section("containers", answer.containers)
    _section("start", [answer.start] if answer.start else [])
    _section("what was found", answer.findings)
    _section("what to do", answer.remedies)
    _section("events", answer.events)


def _node_lines(node: NodeAnswer, answer: PodExplanation) -> list[str]:
    here = " (it is here)" if node.node == answer.node else ""
    if node.fits:
        return [f"{node.node}: has everything the pod needs{here}"]
    return [f"{node.node}: {objection}{here}" for objection in node.objections]


def _section(title: str, lines: Sequence[str]) -> None:
    if lines:
        click.echo(f"\n{title}")
        for line in lines:
            _echo(f"  {line}")


def _echo(line: str) -> None:
    """Print a line; messages of events and of ended containers may contain anything."""
    click.echo(printable(line))
