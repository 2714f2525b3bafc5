"""Command group `moor overhead`: measures what the pods of a handler cost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from moorage.api.clock import SystemClock
from moorage.api.text import printable
from moorage.cli.connection import Target, connection_options
from moorage.cli.errors import CliError
from moorage.cli.interruption import interruptible
from moorage.cli.options import OutputFile, Seconds, size_bytes
from moorage.cli.output import dim, output_option, show_document
from moorage.cli.verbs import VerbGroup
from moorage.runtimes.overhead import Measurement, MeasurementError, MeasureOptions, Report
from moorage.runtimes.overhead.applying import Applied, apply_report
from moorage.runtimes.overhead.report import lines, terminal_plot, write_png
from moorage.wire.client.rest import UnreachableError

_DEFAULTS = MeasureOptions(handler="")


def _time_option(
    flag: str, name: str, default_s: float
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the decorator of an option that is a time of the measurement, in seconds."""
    return click.option(
        flag, name, type=Seconds(min=0), default=default_s, show_default=True, help="Seconds."
    )


@click.group("overhead", cls=VerbGroup)
def command() -> None:
    """Measure what sandboxes cost, as `overhead.podFixed` declares it."""


@command.command("measure")
@click.argument("handler")
@click.option("--class", "runtime_class", default="", help="The class; the handler's by default.")
@click.option("--node", default="", help="Measure on this node only.")
@click.option("--namespace", "-n", default="default", show_default=True)
@click.option("--image", default=_DEFAULTS.image, show_default=True, help="An image with `sh`.")
@click.option("--samples", default=_DEFAULTS.samples, show_default=True, help="Pods per shape.")
@click.option("--parallel", default=_DEFAULTS.parallel, show_default=True, help="Pods at once.")
@click.option(
    "--containers", default=_DEFAULTS.containers, show_default=True, help="Containers of a pod."
)
@click.option(
    "--further-containers",
    default=_DEFAULTS.further_containers,
    show_default=True,
    help="Containers more in the pods that show how overhead grows; 0 for none.",
)
@click.option("--payload", default="16Mi", show_default=True, help="Memory that containers hold.")
@click.option("--percentile", default=_DEFAULTS.percentile, show_default=True)
@click.option("--confidence", default=_DEFAULTS.confidence, show_default=True)
@_time_option("--settle", "settle_s", _DEFAULTS.settle_s)
@_time_option("--window", "window_s", _DEFAULTS.window_s)
@click.option("--readings", default=_DEFAULTS.readings, show_default=True, help="In the window.")
@_time_option("--start-timeout", "start_timeout_s", _DEFAULTS.start_timeout_s)
@click.option("--apply", "is_applied", is_flag=True, help="Write the proposal as a new class.")
@click.option("--in-place", is_flag=True, help="With --apply: change the class itself.")
@click.option("--plot", "is_plotted", is_flag=True, help="Draw the samples in the terminal.")
@click.option("--png", type=OutputFile(), help="Draw the samples to a file.")
@connection_options
@output_option
def measure(
    *,
    handler: str,
    payload: str,
    is_applied: bool,
    in_place: bool,
    is_plotted: bool,
    png: Path | None,
    target: Target,
    output: str,
    **options: object,
) -> None:
    """Measure the overhead of a handler by probe pods, and propose `overhead.podFixed`.

    Idle and busy pods are run and deleted again. On the node itself their cgroups and the runtime's
    processes are read, from elsewhere the node's statistics.
    """
    if in_place and not is_applied:
        raise click.UsageError("--in-place needs --apply")
    payload_bytes = 0 if payload == "0" else size_bytes("--payload", payload)
    wanted = MeasureOptions(handler=handler, payload_bytes=payload_bytes, **options)  # type: ignore[arg-type]

    async def run() -> tuple[Report, Applied | None]:
        async with target.client("moor-overhead") as client:
            measurement = Measurement(client, wanted, SystemClock(), progress=_progress)
            report = await measurement.run()
            if not is_applied:
                return report, None
            _print(report, output)
            return report, await apply_report(client, report, in_place=in_place)

    try:
        with interruptible() as interruptions:
            report, applied = interruptions.run(run())
        if applied is None:
            _print(report, output)
        if is_plotted:
            click.echo(terminal_plot(report), err=output != "table")
        if png is not None:
            write_png(report, png)
    except (MeasurementError, UnreachableError) as error:
        raise CliError(str(error)) from error
    if applied is not None:
        click.echo(_sentence(applied), err=output != "table")
    if report.proposal is None:
        raise CliError(f"no probe pod of the handler {handler} gave a sample")


def _progress(sentence: str) -> None:
    click.echo(dim(sentence), err=True)


def _print(report: Report, output: str) -> None:
    if output != "table":
        show_document(report, output)
        return
    for line in lines(report):
        click.echo(printable(line))


def _sentence(applied: Applied) -> str:
    if applied.is_changed:
        return f"runtimeclass/{applied.runtime_class} declares the proposal now"
    return f"runtimeclass/{applied.runtime_class} declares the proposal already"
