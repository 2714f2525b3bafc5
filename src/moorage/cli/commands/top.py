"""Command `moor top`: watches pods, starts, overhead and failures of each class."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import asdict
from datetime import UTC, datetime

import click

from moorage.api.logs import configure
from moorage.cli.connection import Target, connection_options
from moorage.cli.errors import CliError
from moorage.cli.options import Seconds
from moorage.cli.output import output_option, show_document, table
from moorage.cli.screen import COLUMNS, Screen, Terminal, full_screen
from moorage.inspect.top import ClassRow, ClassWatch
from moorage.wire.client.config import ClientConfig
from moorage.wire.client.rest import Client

_SORTS = {column.title.lower().replace(" ", "-"): index for index, column in enumerate(COLUMNS)}


@click.command("top")
@click.option("--once", is_flag=True, help="Print the table once and exit.")
@click.option(
    "--interval", "interval_s", type=Seconds(0.2, 3600), default=2.0, show_default=True,
    metavar="SECONDS", help="Time between two measurements.",
)  # fmt: skip
@click.option("--sort", type=click.Choice(list(_SORTS)), default="class", show_default=True)
@click.option("--filter", "wanted", default="", help="Show classes and handlers with this text.")
@click.option("--namespace", "-n", help="Count the pods of this namespace; of all by default.")
@connection_options
@output_option
def command(
    *,
    once: bool,
    interval_s: float,
    sort: str,
    wanted: str,
    namespace: str | None,
    target: Target,
    output: str,
) -> None:
    """Watch pods, starts, overhead and failures of each class.

    \b
    Keys: q quit · ← → column to sort by · r reverse · / filter · space pause
    START is the time on the node, or in whole seconds from the creation where no agent of ours
    measured it; OVERHEAD the memory beside the containers, used / declared by the class.
    """
    config = target.config()
    configure("error")
    screen = Screen(column=_SORTS[sort], filter=wanted)
    if once or output != "table":
        rows = screen.selected(asyncio.run(_once(config, namespace)))
        if output == "table":
            cells = [{column.title: column.text(row) for column in COLUMNS} for row in rows]
            click.echo(table(cells, [column.title for column in COLUMNS]))
        else:
            show_document([asdict(row) for row in rows], output)
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise CliError("moor top needs a terminal; use --once or -o json in scripts")
    with full_screen() as terminal:
        asyncio.run(_live(config, namespace, screen, terminal, interval_s))


async def _once(config: ClientConfig, namespace: str | None) -> list[ClassRow]:
    async with (
        Client(config, user_agent="moor-top") as client,
        ClassWatch(client, namespace) as watch,
    ):
        await watch.measure()
        return watch.rows(datetime.now(UTC))


async def _live(
    config: ClientConfig,
    namespace: str | None,
    screen: Screen,
    terminal: Terminal,
    interval_s: float,
) -> None:
    async with (
        Client(config, user_agent="moor-top") as client,
        ClassWatch(client, namespace) as watch,
    ):
        await _Live(watch, screen, terminal, interval_s).run()


class _Live:
    """The live view: measures at an interval, and draws after each measurement and key."""

    def __init__(
        self, watch: ClassWatch, screen: Screen, terminal: Terminal, interval_s: float
    ) -> None:
        self._watch = watch
        self._screen = screen
        self._terminal = terminal
        self._interval_s = interval_s
        self._rows: list[ClassRow] = []
        self._over = asyncio.Event()

    async def run(self) -> None:
        """Run until `q` is pressed or the command is interrupted."""
        self._terminal.follow(self._on_key)
        measuring = asyncio.ensure_future(self._measure())
        try:
            await asyncio.wait(
                (measuring, asyncio.ensure_future(self._over.wait())),
                return_when=asyncio.FIRST_COMPLETED,
            )
            if measuring.done():
                measuring.result()
        finally:
            self._terminal.unfollow()
            measuring.cancel()

    async def _measure(self) -> None:
        while True:
            if not self._screen.is_paused:
                await self._watch.measure()
                self._rows = self._watch.rows(datetime.now(UTC))
            self._draw()
            await asyncio.sleep(self._interval_s)

    def _on_key(self, key: str) -> None:
        self._screen = self._screen.press(key)
        if self._screen.is_over:
            self._over.set()
        else:
            self._draw()

    def _draw(self) -> None:
        height, width = self._terminal.size
        self._terminal.draw(self._screen.lines(self._rows, width, height))
