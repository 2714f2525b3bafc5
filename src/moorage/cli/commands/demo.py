"""Command `moor demo`: starts a temporary cluster, runs the examples, cleans up."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path

import click
import msgspec

from moorage.api.runtime_group import SUPPORTED, RuntimeProfile
from moorage.cli.factory import factory
from moorage.cli.interruption import Interruptions, interruptible
from moorage.cli.output import dim, output_option, show, show_document
from moorage.cluster import Choices, Cluster
from moorage.engine.handlers import Handler
from moorage.inspect.demo import DemoRow, find_examples
from moorage.inspect.demo_network import NetworkShown
from moorage.inspect.demo_runtimes import RuntimesShown
from moorage.inspect.manifests import Manifest, read_manifests
from moorage.inspect.probed_defects import defect_warnings
from moorage.inspect.runtime_features import columns, rows

_COLUMNS = ("pod", "status", "class", "handler", "node", "ip", "kernel", "inside", "start")
_READY_S = 120.0
_FEATURES_S = 15.0
"""How long the demo waits for the probes of features, which began when the node was ready."""


@click.command("demo")
@click.option(
    "--examples",
    type=click.Path(path_type=Path, file_okay=False),
    default=None,
    show_default="those that come with Moorage",
    help="The directory of manifests to show.",
)
@click.option("--install", is_flag=True, help="Install missing Debian packages first.")
@output_option
def command(examples: Path | None, *, install: bool, output: str) -> None:
    """Show the whole path: start a cluster, run the examples, print what runs where, clean up."""
    manifests = read_manifests([find_examples(examples)])
    report = _Reporter(is_quiet=output != "table")
    with interruptible() as interruptions, _directory(interruptions) as cluster:
        checking = cluster.check_host(is_installing=install, report=partial(click.echo, err=True))
        handlers = interruptions.run(checking).handlers
        cluster.create()
        shown = interruptions.run(_run(cluster, report, manifests, interruptions))
    _print(shown, handlers, output)


@contextmanager
def _directory(interruptions: Interruptions) -> Iterator[Cluster]:
    """Yield a cluster in a temporary directory, which is deleted at the end."""
    parent = "/var/lib" if factory().euid() == 0 else None
    directory = Path(tempfile.mkdtemp(prefix="moorage-demo-", dir=parent))
    choices = Choices(name="moorage-demo")
    cluster = factory().cluster(directory, choices, ready_within_s=_READY_S)
    try:
        yield cluster
    finally:
        interruptions.hold_off()
        cluster.delete()


async def _run(
    cluster: Cluster, report: _Reporter, manifests: list[Manifest], interruptions: Interruptions
) -> _Shown:
    """Start the cluster, run the demo on it, stop it. Raises ClusterError, StatusError."""
    # Teardown logs what it cannot remove from the host.
    made = factory()
    made.configure_logs("warning")
    report("starting a cluster")
    try:
        async with cluster:
            report("cluster ready")
            try:
                async with cluster.client("moor-demo") as client:
                    runtimes = await made.show_runtimes(client, report)
                    network = await made.show_network(client, runtimes.strongest, report)
                    rows = await made.demo(client, manifests, report).run()
                    features = await made.read_features(client, _FEATURES_S)
                    return _Shown(runtimes, network, rows, features)
            finally:
                interruptions.hold_off()
    finally:
        report("stopped the cluster")


class _Shown(msgspec.Struct, frozen=True):
    """What the demo found and ran, for the output at its end."""

    runtimes: RuntimesShown
    network: NetworkShown
    rows: list[DemoRow]
    profiles: tuple[RuntimeProfile, ...]


class _Reporter:
    """Prints each step with the seconds since the start; nothing if `is_quiet`."""

    def __init__(self, *, is_quiet: bool) -> None:
        self._is_quiet = is_quiet
        self._began = time.monotonic()

    def __call__(self, sentence: str) -> None:
        if not self._is_quiet:
            click.echo(f"{dim(f'{time.monotonic() - self._began:6.2f} s')}  {sentence}")


def _print(shown: _Shown, handlers: tuple[Handler, ...], output: str) -> None:
    if output != "table":
        show_document(
            {
                "classes": msgspec.to_builtins(shown.runtimes.classes),
                "refusal": shown.runtimes.refusal,
                "fitted": {
                    "class": shown.runtimes.fitted_class,
                    "reason": shown.runtimes.fitted_reason,
                },
                "network": msgspec.to_builtins(shown.network),
                "pods": [asdict(row) for row in shown.rows],
                "features": rows(columns(shown.profiles)),
            },
            output,
        )
        return
    click.echo()
    show(
        [
            asdict(row)
            | {
                "class": row.runtime_class or "(none)",
                "start": f"{row.start_s:.2f} s" if row.start_s is not None else None,
            }
            for row in shown.rows
        ],
        _COLUMNS,
        output,
    )
    click.echo()
    for warning in defect_warnings(handlers):
        click.echo(f"warning: {warning}\n")
    by_name = {handler.handler: handler for handler in handlers}
    for refused in sorted({(row.handler, row.reason) for row in shown.rows if row.reason}):
        handler = by_name.get(refused[0])
        click.echo(f"{refused[0]}: {refused[1]}")
        if handler is not None and not handler.available:
            click.echo(f"  {handler.reason} → {handler.remedy}")
    _print_next(shown.profiles)


def _print_next(profiles: tuple[RuntimeProfile, ...]) -> None:
    """Print what was found in one line, and what to do next."""
    click.echo()
    matrix = rows(columns(profiles))
    if matrix:
        titles = [column.title for column in columns(profiles)]
        differing = sum({row[title] for title in titles} != {SUPPORTED} for row in matrix)
        click.echo(f"{differing} of {len(matrix)} features are not in every runtime above.")
    click.echo("Next, on a cluster that stays:")
    for line, what in _NEXT:
        click.echo(f"  {line:<47}{dim(what)}")


_NEXT = (
    ("moor up", "start it, with a class for each runtime of this machine"),
    ("moor run moorage.local/busybox:1 -- uname -r", "run a command in each class, side by side"),
    ("moor runtimes features", "all features of each runtime"),
    ("moor explain pod/NAME", "why a pod is as it is"),
)
