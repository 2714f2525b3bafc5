"""Command `moor conformance`: proves what a class promises, and lists what classes have proved."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click
from click.core import ParameterSource

from moorage.api.clock import SystemClock
from moorage.api.text import printable
from moorage.cli.connection import Target, connection_options
from moorage.cli.errors import CliError
from moorage.cli.interruption import interruptible
from moorage.cli.options import OutputFile, Seconds
from moorage.cli.output import dim, show, show_document
from moorage.linux.atomic_file import replace_file
from moorage.runtimeclass.conformance.properties import STANDARD_CLASSES
from moorage.runtimeclass.conformance.results import ClassResult, Standing, standings
from moorage.runtimes.conformance import (
    ConformanceError,
    ConformanceOptions,
    ConformanceTest,
    read_profiles,
    write_result,
)
from moorage.runtimes.conformance.runner import REPORTS
from moorage.wire.client.resources import RUNTIME_CLASSES

_DEFAULTS = ConformanceOptions(runtime_class="")
_LIST_FORMATS = ("text", "json")
_TEST_OPTIONS = frozenset(
    {"standard", "node", "namespace", "image", "wasm_image", "timeout_s", "parallel", "report",
     "dry_run"}
)  # fmt: skip
_COLUMNS = ("class", "handler", "conforms to", "tested", "valid")


@click.command("conformance")
@click.argument("runtime_class", metavar="[CLASS]", required=False)
@click.option(
    "--as", "standard", type=click.Choice(list(STANDARD_CLASSES)), default=None,
    help="The standard class to prove; every one by default. Fails if it is not proved.",
)  # fmt: skip
@click.option("--node", default="", help="Run the probes on this node.")
@click.option("--namespace", "-n", default="default", show_default=True)
@click.option("--image", default=_DEFAULTS.image, show_default=True, help="An image with `sh`.")
@click.option("--wasm-image", default="", help="An image with a WebAssembly program.")
@click.option(
    "--timeout", "timeout_s", type=Seconds(min=0), default=_DEFAULTS.timeout_s, show_default=True,
    help="Seconds until a probe is cut off.",
)  # fmt: skip
@click.option("--parallel", default=_DEFAULTS.parallel, show_default=True, help="Pods at once.")
@click.option(
    "--format", "form", type=click.Choice(list(REPORTS)), default="text", show_default=True
)
@click.option(
    "--report", type=OutputFile(), help="Write the report to a file, instead of printing it."
)
@click.option("--dry-run", is_flag=True, help="Do not write the result on the class.")
@connection_options
def command(
    *,
    runtime_class: str | None,
    standard: str | None,
    node: str,
    namespace: str,
    image: str,
    wasm_image: str,
    timeout_s: float,
    parallel: int,
    form: str,
    report: Path | None,
    dry_run: bool,
    target: Target,
) -> None:
    """Prove by pods what a class promises, and write the result on the class.

    Without CLASS, list what each class has proved, as text or JSON; a result is not valid any more
    when the handler's program has changed since.
    """
    if not runtime_class:
        _list(target, form)
        return
    try:
        options = ConformanceOptions(
            runtime_class=runtime_class,
            standard=standard or "",
            namespace=namespace,
            node=node,
            image=image,
            wasm_image=wasm_image,
            timeout_s=timeout_s,
            parallel=parallel,
        )
        with interruptible() as interruptions:
            result = interruptions.run(_test(target, options, is_written=not dry_run))
    except ConformanceError as error:
        raise CliError(str(error)) from error
    text = REPORTS[form](result)
    if report is None:
        click.echo(printable(text, keep="\n") if form == "text" else text, nl=False)
    else:
        replace_file(report, text.encode(), mode=0o644)
    if standard is not None and standard not in result.conforms_to:
        raise CliError(f"class {runtime_class} does not conform to {standard}")


def _list(target: Target, form: str) -> None:
    """Print what each class has proved. Raises UsageError for options of a test."""
    context = click.get_current_context()
    for option in context.command.params:
        name = str(option.name)
        is_given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if is_given and name in _TEST_OPTIONS:
            raise click.UsageError(f"{option.opts[0]} needs a CLASS to test")
    if form not in _LIST_FORMATS:
        raise click.UsageError(f"--format {form} needs a CLASS to test")
    standings = asyncio.run(_standings(target))
    if form == "json":
        show_document(standings, form)
    else:
        _print_standings(standings)


async def _test(target: Target, options: ConformanceOptions, *, is_written: bool) -> ClassResult:
    async with target.client("moor-conformance") as client:
        test = ConformanceTest(client, options, SystemClock(), progress=_progress)
        result = await test.run()
        if is_written:
            await write_result(client, result)
    return result


async def _standings(target: Target) -> list[Standing]:
    async with target.client("moor-conformance") as client:
        profiles = await read_profiles(client)
        classes = (await client.list(RUNTIME_CLASSES)).items
    return standings(classes, profiles)


def _print_standings(standings: list[Standing]) -> None:
    rows = [
        {
            "class": one.runtime_class,
            "handler": one.handler,
            "conforms to": ", ".join(one.conforms_to),
            "tested": one.tested_at,
            "valid": None if not one.tested_at else not one.is_stale,
        }
        for one in standings
    ]
    show(rows, _COLUMNS, "table")


def _progress(sentence: str) -> None:
    click.echo(dim(sentence), err=True)
