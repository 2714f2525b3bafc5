"""Command `moor migrate`: former runtime choices become handlers, classes and policies."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from moorage.api.names import dns_label_errors, dns_subdomain_errors
from moorage.api.text import printable
from moorage.cli.connection import Target, connection_options
from moorage.cli.errors import is_expected, sentence_of
from moorage.cli.options import pairs
from moorage.cli.output import has_colour, output_option, show_document
from moorage.migrate.files import plan_files
from moorage.migrate.reading import STANDARD_INPUT
from moorage.migrate.rules import Finding, Meaning, Options, OutputError, RenameError, Severity
from moorage.migrate.rules.formats import MAX_BYTES

_DIFFERENCES = 1
_FAILED = 2
_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


class _Done(msgspec.Struct, frozen=True):
    """What a migration found and did. `output` is what standard input became, None without it."""

    has_changes: bool
    findings: tuple[Finding, ...]
    diffs: tuple[str, ...] = ()
    written: tuple[str, ...] = ()
    output: str | None = None


@click.command("migrate")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path, exists=True, allow_dash=True))
@click.option("--write", is_flag=True, help="Make the changes, instead of printing them as a diff.")
@click.option(
    "--out",
    "out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("migrated"),
    show_default=True,
    help="Directory of the new files: handlers, classes, policies, patches, the rename table.",
)
@click.option(
    "--rename",
    "renames",
    multiple=True,
    metavar="OLD=NEW",
    help="New name of a handler. Without it, dots become dashes.",
)
@click.option(
    "--class",
    "classes",
    multiple=True,
    metavar="MEANING=CLASS",
    help=f"Class for what annotations meant: {', '.join(Meaning)}.",
)
@click.option(
    "--default-handler",
    metavar="NAME",
    default="",
    help="Handler for alpha classes that name none.",
)
@click.option("--live", is_flag=True, help="Migrate the objects of a cluster, instead of files.")
@connection_options
@output_option
def command(
    *,
    paths: tuple[Path, ...],
    write: bool,
    out: Path,
    renames: tuple[str, ...],
    classes: tuple[str, ...],
    default_handler: str,
    live: bool,
    target: Target,
    output: str,
) -> None:
    """Migrate files or a cluster from former ways to choose a pod's runtime.

    Knows RuntimeClasses of alpha and beta, pod annotations of containerd, CRI-O, frakti and
    dockershim, Docker, Podman, Compose, containerd and CRI-O configurations, PodSecurityPolicies,
    Kyverno and Gatekeeper policies. `-` is standard input, which --write prints changed.

    \b
    Exit status: 0 nothing to do, or all written · 1 there are differences ·
    2 wrong usage, or something was refused or failed, and the reason is on standard error
    """
    options = _options(renames, classes, default_handler)
    if live and paths:
        raise click.UsageError("--live takes no PATH")
    if not live and not paths:
        raise click.UsageError("name files or directories, - for standard input, or --live")
    given = click.get_current_context().params
    if not live and (given.get("kubeconfig") or given.get("context")):
        raise click.UsageError("--kubeconfig and --context go with --live")
    try:
        if live:
            done = _migrate_live(options, target, write=write)
        else:
            done = _migrate_files(paths, out, options, write=write)
    except Exception as error:
        if not isinstance(error, RenameError | OutputError) and not is_expected(error):
            raise
        # As kubectl diff does it: 1 says that there are differences.
        click.echo(f"moor: {printable(sentence_of(error))}", err=True)
        sys.exit(_FAILED)
    if output == "table":
        _print(done, live=live, write=write)
    else:
        show_document(done, output)
    if any(finding.severity is Severity.REFUSED for finding in done.findings):
        sys.exit(_FAILED)
    if done.has_changes and not write:
        sys.exit(_DIFFERENCES)


def _options(renames: tuple[str, ...], classes: tuple[str, ...], default_handler: str) -> Options:
    chosen: dict[Meaning, str] = {}
    for meaning, name in pairs("--class", classes).items():
        if meaning not in list(Meaning):
            raise click.UsageError(f"--class: {meaning!r} is none of {', '.join(Meaning)}")
        if errors := dns_subdomain_errors(name):
            raise click.UsageError(f"--class {meaning}={name}: {errors[0]}")
        chosen[Meaning(meaning)] = name
    if default_handler and (errors := dns_label_errors(default_handler)):
        raise click.UsageError(f"--default-handler {default_handler}: {errors[0]}")
    return Options(chosen, pairs("--rename", renames), default_handler)


def _migrate_files(paths: tuple[Path, ...], out: Path, options: Options, *, write: bool) -> _Done:
    reads_input = any(str(path) == STANDARD_INPUT for path in paths)
    given = sys.stdin.buffer.read(MAX_BYTES + 1) if reads_input else None
    named = [path for path in paths if str(path) != STANDARD_INPUT]
    migration = plan_files(named, out, options, given)
    has_changes, findings = migration.has_changes, migration.findings
    if not write:
        return _Done(has_changes, findings, diffs=tuple(migration.diffs()))
    written = tuple(map(str, migration.write()))
    return _Done(has_changes, findings, written=written, output=migration.standard_output())


def _migrate_live(options: Options, target: Target, *, write: bool) -> _Done:
    # Imported here: files are migrated without a client.
    import asyncio

    from moorage.migrate.live import migrate_live

    result = asyncio.run(migrate_live(target.config(), options, is_writing=write))
    has_changes = bool(result.diffs)
    if not write:
        return _Done(has_changes, result.findings, diffs=tuple(result.diffs))
    return _Done(has_changes, result.findings, written=tuple(result.written))


def _print(done: _Done, *, live: bool, write: bool) -> None:
    if not write:
        _print_diffs(iter(done.diffs))
    if done.output is not None:
        click.echo(done.output, nl=False)
    for name in done.written:
        shown = printable(name)
        click.echo(f"{shown} migrated" if live else f"wrote {shown}", err=done.output is not None)
    for finding in done.findings:
        click.echo(f"moor migrate: {printable(str(finding))}", err=True)


def _print_diffs(diffs: Iterator[str]) -> None:
    for diff in diffs:
        if not sys.stdout.isatty():
            # As `patch` takes it.
            click.echo(diff, nl=False)
            continue
        for line in diff.removesuffix("\n").split("\n"):
            colour = _COLOURS.get(line[:1]) if has_colour() else None
            shown = printable(line.removesuffix("\r"), keep="\t")
            click.echo(click.style(shown, fg=colour) if colour else shown)
