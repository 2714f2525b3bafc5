"""Command `moor logs`: prints or follows the logs of the cluster's parts."""

from __future__ import annotations

import os
import selectors
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import click

from moorage.cli.errors import CliError
from moorage.cli.factory import factory
from moorage.cli.options import cluster_of, data_dir_option
from moorage.cluster.layout import Layout
from moorage.linux.log_file import old_file

PARTS = ("supervisor", "apiserver", "controllers", "node", "dns", "engine")
_WIDTH = max(map(len, PARTS))
_READ_BYTES = 1 << 16


@click.command("logs")
@click.argument("part", type=click.Choice(PARTS), required=False)
@data_dir_option
@click.option("--follow", "-f", is_flag=True, help="Follow the log.")
@click.option("--lines", "-n", type=click.IntRange(0), default=100, show_default=True)
def command(part: str | None, data_dir: Path, *, follow: bool, lines: int) -> None:
    """Show what a part wrote, or what all parts wrote, with the part's name before each line."""
    cluster = cluster_of(data_dir)
    # Only a directory with a cluster has logs.
    _, layout = cluster.settings, cluster.layout
    paths = _paths(layout, part)
    if not paths:
        place = layout.log(part) if part else layout.logs
        raise CliError(f"{part or 'the cluster'} has written nothing: {place} does not exist")
    if follow:
        _follow(paths, lines, is_single=part is not None)
    elif part is not None:
        for line in _tail(paths[part], lines):
            click.echo(line)
    else:
        for name, line in _merged(paths, lines):
            click.echo(_prefixed(name, line))


def _paths(layout: Layout, part: str | None) -> dict[str, Path]:
    """Return the log files that exist, or were just replaced, by part."""
    names = PARTS if part is None else (part,)
    paths = {name: layout.log(name) for name in names}
    return {
        name: path for name, path in paths.items() if path.exists() or old_file(path, 1).exists()
    }


def _tail(path: Path, lines: int) -> list[str]:
    """Return the last lines of a log, and of the one before if it has just been replaced."""
    kept: deque[str] = deque(maxlen=lines)
    for file_path in (old_file(path, 1), path):
        try:
            with file_path.open(errors="replace") as file:
                kept.extend(file)
        except FileNotFoundError:
            continue
    return [line.rstrip("\n") for line in kept]


def _merged(paths: Mapping[str, Path], lines: int) -> Iterator[tuple[str, str]]:
    """Yield part and line for the last lines of each log, sorted by timestamp.

    A line without timestamp (of a traceback or the supervisor) stays after the previous line.
    """
    entries: list[tuple[str, str, str]] = []
    for name, path in paths.items():
        stamp = ""
        for line in _tail(path, lines):
            stamp = _stamp(line) or stamp
            entries.append((stamp, name, line))
    # Stable: lines of one part keep their order.
    for _, name, line in sorted(entries, key=lambda entry: entry[0]):
        yield name, line


def _stamp(line: str) -> str:
    """Return the timestamp at the start of a log line, empty if it has none."""
    first = line.partition(" ")[0]
    return first if len(first) > 20 and first.endswith("Z") and first[10:11] == "T" else ""


def _prefixed(name: str, line: str) -> str:
    return f"{name:<{_WIDTH}}  {line}"


def _follow(paths: Mapping[str, Path], lines: int, *, is_single: bool) -> None:
    """Print lines as they are written; blocks until Ctrl-C.

    Raises CliError if the program `tail` is missing. A single log is followed by `tail` itself,
    which replaces this process.
    """
    tail = factory().find_program("tail")
    if tail is None:
        listed = " ".join(map(str, paths.values()))
        raise CliError(f"the program tail is missing; the logs are {listed}")
    argv = [tail, "-n", str(lines), "-F"]
    if is_single:
        factory().become_program([*argv, str(next(iter(paths.values())))])
    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        for name, path in paths.items():
            # tail reports log rotation on standard error, which is not wanted here.
            process = factory().start_program([*argv, str(path)])
            stack.enter_context(process)
            stack.callback(process.terminate)
            assert process.stdout is not None
            selector.register(process.stdout, selectors.EVENT_READ, [name, b""])
        try:
            _copy(selector)
        except KeyboardInterrupt:
            return


def _copy(selector: selectors.BaseSelector) -> None:
    while selector.get_map():
        for key, _ in selector.select():
            name, rest = key.data
            content = os.read(key.fd, _READ_BYTES)
            if not content:
                selector.unregister(key.fileobj)
                continue
            *complete, key.data[1] = (rest + content).split(b"\n")
            for line in complete:
                click.echo(_prefixed(name, line.decode(errors="replace")))
