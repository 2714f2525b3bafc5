"""`moor demo`."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import click

from moorage.cli.errors import CliError
from moorage.cli.interruption import Interruptions, interruptible
from moorage.cli.options import layout_of
from moorage.cli.output import dim, output_option, show, show_document
from moorage.cli.startup import opened, prepare_machine
from moorage.cli.teardown import take_down
from moorage.client import Client, load_kubeconfig
from moorage.cluster.claims import Claims
from moorage.cluster.creation import Choices
from moorage.cluster.demo import Demo, DemoError, Shown, find_examples
from moorage.cluster.layout import Layout
from moorage.cluster.manifests import Manifest, ManifestError, read_manifests
from moorage.cluster.start import StartError, start_detached
from moorage.handlers import Handler
from moorage.linux.id_register import forget
from moorage.linux.trees import remove_tree

_COLUMNS = ("pod", "status", "class", "handler", "node", "ip", "kernel", "inside", "start")
_READY_S = 120.0


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
    try:
        manifests = read_manifests([find_examples(examples)])
    except (DemoError, ManifestError) as error:
        raise CliError(str(error)) from error
    say = _Narrator(is_quiet=output != "table")
    with interruptible() as interruptions, _directory(interruptions) as root, Claims() as claims:
        layout = layout_of(root)
        handlers = interruptions.run(prepare_machine(layout, is_installing=install))
        settings = opened(layout, Choices(name="moorage-demo"), claims)
        try:
            rows = _shown(layout, say, manifests, interruptions, claims)
        finally:
            interruptions.hold_off()
            take_down(layout, settings)
            say("stopped the cluster")
    _print(rows, handlers, output)


@contextmanager
def _directory(interruptions: Interruptions) -> Iterator[Path]:
    """A directory for a cluster of its own, which goes at the end, whatever happens."""
    place = "/var/lib" if os.geteuid() == 0 else None
    root = Path(tempfile.mkdtemp(prefix="moorage-demo-", dir=place))
    try:
        yield root
    finally:
        interruptions.hold_off()
        remove_tree(root)
        forget(Layout(root).node / "pods")


class _Narrator:
    """Says what happens, with the time since the start."""

    def __init__(self, *, is_quiet: bool) -> None:
        self._is_quiet = is_quiet
        self._began = time.monotonic()

    def __call__(self, sentence: str) -> None:
        if not self._is_quiet:
            click.echo(f"{dim(f'{time.monotonic() - self._began:6.2f} s')}  {sentence}")


def _shown(
    layout: Layout,
    say: _Narrator,
    manifests: list[Manifest],
    interruptions: Interruptions,
    claims: Claims,
) -> list[Shown]:
    say("starting a cluster")
    try:
        start_detached(layout, _READY_S, interruptions.later(), claims)
        say("cluster ready")
        return interruptions.run(_run(layout, say, manifests))
    except (StartError, DemoError, ManifestError) as error:
        raise CliError(str(error)) from error


async def _run(layout: Layout, say: _Narrator, manifests: list[Manifest]) -> list[Shown]:
    async with Client(load_kubeconfig(layout.kubeconfig), user_agent="moor-demo") as client:
        return await Demo(client, manifests, say).run()


def _print(rows: list[Shown], handlers: tuple[Handler, ...], output: str) -> None:
    if output != "table":
        show_document([asdict(row) for row in rows], output)
        return
    click.echo()
    show(
        [
            asdict(row)
            | {
                "class": row.runtime_class or "(none)",
                "start": f"{row.start_s:.2f} s" if row.start_s is not None else None,
            }
            for row in rows
        ],
        _COLUMNS,
        output,
    )
    click.echo()
    by_name = {each.handler: each for each in handlers}
    for refused in sorted({(row.handler, row.reason) for row in rows if row.reason}):
        handler = by_name.get(refused[0])
        click.echo(f"{refused[0]}: {refused[1]}")
        if handler is not None and not handler.available:
            click.echo(f"  {handler.reason} → {handler.remedy}")
