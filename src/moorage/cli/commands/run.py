"""Command `moor run`: runs one command under several classes and compares the results."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import click

from moorage.api.logs import configure
from moorage.api.quantity import parse as parse_quantity
from moorage.cli.connection import Target, connection_options
from moorage.cli.errors import FAILED, CliError
from moorage.cli.interruption import interruptible
from moorage.cli.options import Seconds, pairs
from moorage.cli.output import dim, output_option, show, show_document
from moorage.inspect.side_by_side import Comparison, run_side_by_side
from moorage.inspect.trials import Trial, TrialResult
from moorage.runtimeclass.start_phases import CONDITION_RESOLUTION_MS, duration_words
from moorage.runtimes.known_classes import class_names
from moorage.wire.client.config import ClientConfig
from moorage.wire.client.rest import Client

_COLUMNS = ("class", "handler", "result", "start", "run", "cpu", "memory")
_MAX_TIMEOUT_S = 86400


@click.command("run", context_settings={"ignore_unknown_options": False})
@click.option(
    "--class",
    "classes",
    metavar="A,B,C",
    help="Classes to run under, `-` for none; all classes of the cluster by default.",
)
@click.option("--namespace", "-n", default="default", show_default=True)
@click.option(
    "--timeout", "timeout_s", type=Seconds(1, _MAX_TIMEOUT_S), default=60.0,
    show_default=True, metavar="SECONDS", help="Longest time of each pod.",
)  # fmt: skip
@click.option(
    "--limit", "limits", multiple=True, metavar="RESOURCE=QUANTITY",
    help="Limit of the container, such as memory=64Mi; may be repeated.",
)  # fmt: skip
@click.option("--parallel", is_flag=True, help="Run all pods at once, not one after the other.")
@click.option("--keep", is_flag=True, help="Keep the pods.")
@connection_options
@output_option
@click.argument("image")
@click.argument("arguments", nargs=-1, metavar="[-- CMD...]")
def command(
    *,
    classes: str | None,
    namespace: str,
    timeout_s: float,
    limits: tuple[str, ...],
    parallel: bool,
    keep: bool,
    target: Target,
    output: str,
    image: str,
    arguments: tuple[str, ...],
) -> None:
    """Run one command under several classes side by side.

    Prints for each class the exit code, the time it took to start and to run, CPU and memory, each
    phase of the start, refusals, and how its output differs from the first one's. The pods are
    removed, also after Ctrl-C. Exit status 1 if a command did not end with 0.
    """
    trial = Trial("", image, arguments, _limits(limits), timeout_s)
    config = target.config()
    # What the watch retries is no news here: a trial has its own deadline.
    configure("error")
    with interruptible() as interruptions:
        comparison = interruptions.run(
            _run(config, namespace, trial, classes, is_parallel=parallel, keeps_pods=keep)
        )
    if output == "table":
        _print(comparison)
    else:
        show_document(asdict(comparison), output)
    if not all(result.is_good for result in comparison.results):
        sys.exit(FAILED)


async def _run(
    config: ClientConfig, namespace: str, trial: Trial, classes: str | None, **how: bool
) -> Comparison:
    async with Client(config, user_agent="moor-run") as client:
        names = await class_names(client) if classes is None else _names(classes)
        if not names:
            raise CliError("the cluster has no RuntimeClass: name one with --class, `-` for none")
        return await run_side_by_side(client, namespace, trial, names, **how)


def _names(classes: str) -> list[str]:
    """Return the classes of a comma-separated list, each once. Raises UsageError."""
    names = [name.strip() for name in classes.split(",")]
    if not all(names):
        raise click.UsageError("--class takes names of classes separated by commas, `-` for none")
    return list(dict.fromkeys(names))


def _limits(texts: tuple[str, ...]) -> dict[str, str]:
    limits = pairs("--limit", texts)
    for name, text in limits.items():
        try:
            parse_quantity(text)
        except ValueError as error:
            raise click.UsageError(f"--limit {name}: {text!r} is not a quantity") from error
    return limits


def _print(comparison: Comparison) -> None:
    show(
        [_row(result) for result in comparison.results],
        _COLUMNS,
        "table",
        notes=[list(_notes(result)) for result in comparison.results],
    )
    good = next((one for one in comparison.results if one.exit_code is not None), None)
    if good is not None and good.output:
        click.echo(f"\noutput under {good.runtime_class}")
        for line in good.output.splitlines()[:40]:
            click.echo("  " + "".join(char if char.isprintable() else "�" for char in line))
    for difference in comparison.differences:
        click.echo(f"\n{difference.runtime_class} is different from {difference.baseline}: "
                   f"{difference.what}")  # fmt: skip
        for line in difference.lines:
            click.echo(f"  {line}")


def _row(result: TrialResult) -> dict[str, Any]:
    outcome = result.outcome if result.exit_code is None else f"exit {result.exit_code}"
    return {
        "class": result.runtime_class,
        "handler": result.handler,
        "result": outcome,
        "start": _time(result.start_ms),
        "run": _time(result.run_ms),
        "cpu": _time(result.cpu_ms),
        "memory": _size(result.memory_bytes),
    }


def _notes(result: TrialResult) -> Iterator[str]:
    if result.reason and result.reason != f"exit code {result.exit_code}":
        yield result.reason
    if result.phases:
        yield dim(
            " · ".join(
                f"{phase.name} {duration_words(phase.ms)}"
                + (" (± 1 s)" if phase.resolution_ms >= CONDITION_RESOLUTION_MS else "")
                for phase in result.phases
            )
        )
    for event in result.events:
        if not result.reason or event not in result.reason:
            yield f"event {event}"


def _time(ms: float | None) -> str | None:
    return None if ms is None else duration_words(ms)


def _size(size_bytes: int | None) -> str | None:
    return None if size_bytes is None else f"{size_bytes / 2**20:.1f} MiB"
