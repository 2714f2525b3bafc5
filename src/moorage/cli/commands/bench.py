"""Command `moor bench`: measures what each class costs."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click
import msgspec

from moorage.api.logs import configure
from moorage.api.text import printable
from moorage.cli.connection import Target, connection_options
from moorage.cli.errors import CliError
from moorage.cli.interruption import interruptible
from moorage.cli.options import OutputFile, Seconds
from moorage.cli.output import dim, output_option, show, show_document
from moorage.cli.verbs import VerbGroup
from moorage.inspect.class_bench import (
    BenchPlan,
    ClassBench,
    ClassSummary,
    Measurements,
    summarize,
    table_columns,
)
from moorage.inspect.class_workloads import IMAGE, METRICS
from moorage.runtimes.known_classes import check_classes, class_names
from moorage.wire.client.config import ClientConfig
from moorage.wire.client.rest import Client

_UNITS = {metric.name: metric.unit for metric in METRICS}


@click.group("bench", cls=VerbGroup)
def command() -> None:
    """Measure what each class costs."""


@command.command("classes")
@click.option(
    "--class", "classes", metavar="A,B,C",
    help="Classes to measure, `-` for none; all classes of the cluster by default.",
)  # fmt: skip
@click.option(
    "--image", default=IMAGE, show_default=True,
    help="Image with sh, dd, httpd and wget, such as busybox.",
)  # fmt: skip
@click.option(
    "--starts", type=click.IntRange(0, 1000), default=5, show_default=True,
    help="Pods whose start is measured, one after the other.",
)  # fmt: skip
@click.option(
    "--rounds", type=click.IntRange(0, 1000), default=3, show_default=True,
    help="Pods in which throughput is measured.",
)  # fmt: skip
@click.option(
    "--density", type=click.IntRange(0, 1000), default=4, show_default=True,
    help="Pods that are started at once.",
)  # fmt: skip
@click.option(
    "--timeout", "timeout_s", type=Seconds(1, 86400), default=120.0, show_default=True,
    metavar="SECONDS", help="Longest time of each pod.",
)  # fmt: skip
@click.option(
    "--samples", type=OutputFile(),
    help="Write every sample to this file, as JSON.",
)  # fmt: skip
@click.option("--namespace", "-n", default="default", show_default=True)
@connection_options
@output_option
def classes_command(
    *,
    classes: str | None,
    image: str,
    starts: int,
    rounds: int,
    density: int,
    timeout_s: float,
    samples: Path | None,
    namespace: str,
    target: Target,
    output: str,
) -> None:
    """Run the same work under every class, and print the medians.

    Start latency, throughput of system calls, files and network, density, memory, overhead and
    failures. The pods are removed, also after Ctrl-C. Exit status 1 if a class could not be
    measured at all.
    """
    config = target.config()
    configure("error")
    names = tuple(dict.fromkeys(name.strip() for name in classes.split(","))) if classes else ()
    if classes is not None and not all(names or ("",)):
        raise click.UsageError("--class takes names of classes separated by commas, `-` for none")
    plan = BenchPlan(names, image, starts, rounds, density, timeout_s)
    with interruptible() as interruptions:
        plan, measured = interruptions.run(_measure(config, namespace, plan))
    summaries = summarize(plan.classes, measured)
    document = {
        "plan": asdict(plan),
        "units": _UNITS,
        "summary": [asdict(summary) for summary in summaries],
        **asdict(measured),
    }
    if samples is not None:
        samples.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")
    if output == "table":
        _print(summaries, measured)
    else:
        show_document(document, output)
    unmeasured = [summary.runtime_class for summary in summaries if not summary.medians]
    if unmeasured:
        raise CliError(f"nothing could be measured under {', '.join(unmeasured)}")


async def _measure(
    config: ClientConfig, namespace: str, plan: BenchPlan
) -> tuple[BenchPlan, Measurements]:
    async with Client(config, user_agent="moor-bench") as client:
        if not plan.classes:
            plan = replace(plan, classes=tuple(await class_names(client)))
        if not plan.classes:
            raise CliError("the cluster has no RuntimeClass: name one with --class, `-` for none")
        await check_classes(client, plan.classes)
        bench = ClassBench(client, namespace, plan, lambda text: click.echo(dim(text), err=True))
        return plan, await bench.run()


def _print(summaries: list[ClassSummary], measured: Measurements) -> None:
    columns = table_columns(summaries)
    rows: list[dict[str, Any]] = []
    for summary in summaries:
        cells = {f"{name} {_UNITS[name]}": _number(summary.medians.get(name)) for name in columns}
        rows.append({"class": summary.runtime_class, **cells, "failures": summary.failures})
    heads = ["class", *(f"{name} {_UNITS[name]}" for name in columns), "failures"]
    show(rows, heads, "table")
    counts: dict[tuple[str, str, str], int] = {}
    for failure in measured.failures:
        key = (failure.runtime_class, failure.metric, failure.why)
        counts[key] = counts.get(key, 0) + 1
    for (name, metric, why), count in counts.items():
        click.echo(f"\n{name}: {metric} failed {count} times: {printable(why)}")


def _number(value: float | None) -> str | None:
    if value is None:
        return None
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
