"""Command `moor explain`: prints a pod's placement, or why it does not run."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import click

from moorage.cli.completion import complete_namespaces, complete_pods
from moorage.cli.errors import CliError
from moorage.cli.handlers import handlers_in_use
from moorage.cli.options import cluster_of, data_dir_option
from moorage.cli.output import dim, output_option, show_document
from moorage.cluster import Cluster, Settings
from moorage.cluster.explain import NodeAnswer, PodExplanation, explain_pod
from moorage.cluster.machine import inspect_machine
from moorage.node.paths import NodePaths
from moorage.node.pods.handler_records import HandlerRecords

_KINDS = ("pod", "pods", "po")


@click.command("explain")
@click.argument("target", metavar="pod/NAME", shell_complete=complete_pods)
@click.option(
    "--namespace",
    "-n",
    default="default",
    show_default=True,
    shell_complete=complete_namespaces,
)
@data_dir_option
@output_option
def command(target: str, namespace: str, data_dir: Path, *, output: str) -> None:
    """Explain why a pod is where it is, or why it does not run.

    Prints its class and handler, the objections of every node, its containers and its events.
    """
    kind, slash, name = target.partition("/")
    if not slash:
        kind, name = _KINDS[0], target
    if kind not in _KINDS or not name:
        raise click.UsageError(f"only pods can be explained: pod/NAME, not {target!r}")
    cluster = cluster_of(data_dir)
    answer = asyncio.run(_ask(cluster, cluster.running_settings(), namespace, name))
    if output == "table":
        _print(answer)
    else:
        show_document(asdict(answer), output)


async def _ask(cluster: Cluster, settings: Settings, namespace: str, name: str) -> PodExplanation:
    layout = cluster.layout
    _, handlers = await inspect_machine(layout) if settings.has_node else (None, ())
    try:
        local = (await handlers_in_use(layout, handlers)).handlers
    except CliError:
        # The node's status already reports an engine that does not answer.
        local = ()
    async with cluster.client("moor-explain") as client:
        return await explain_pod(
            client,
            namespace,
            name,
            filters_by_handler=settings.filters_by_handler,
            now=datetime.now(UTC),
            local_handlers=local,
            records=HandlerRecords(NodePaths(layout.node, layout.pod_logs)),
        )


def _print(answer: PodExplanation) -> None:
    click.echo(f"pod {answer.pod} {answer.verdict}\n")
    overhead = ", ".join(f"{name} {value}" for name, value in answer.overhead.items())
    click.echo(f"class      {answer.runtime_class}")
    click.echo(f"handler    {answer.handler}")
    if overhead:
        click.echo(f"overhead   {overhead}, added to the containers' requests")
    click.echo(f"node       {answer.node or '-'}")
    _section("nodes", [line for node in answer.nodes for line in _node_lines(node, answer)])
    _section("containers", answer.containers)
    _section("what to do", answer.remedies)
    _section("events", answer.events)


def _node_lines(node: NodeAnswer, answer: PodExplanation) -> list[str]:
    here = dim(" (it is here)") if node.node == answer.node else ""
    if node.fits:
        return [f"{node.node}: has everything the pod needs{here}"]
    return [f"{node.node}: {objection}{here}" for objection in node.objections]


def _section(title: str, lines: Sequence[str]) -> None:
    if lines:
        click.echo(f"\n{title}")
        for line in lines:
            click.echo(f"  {line}")
