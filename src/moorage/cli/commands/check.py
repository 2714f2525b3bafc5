"""Command `moor check`: checks manifests against classes, profiles and policies."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import click

from moorage.api.errors import FieldError
from moorage.cli.connection import Target, connection_options
from moorage.cli.errors import CliError
from moorage.linux.descriptors import read_regular_file
from moorage.runtimes.checks import (
    ERROR,
    FORMATS,
    Facts,
    FactsError,
    Manifest,
    Result,
    UnreadableError,
    check_manifests,
    facts_of_cluster,
    read_manifests,
    report,
)
from moorage.runtimes.checks.check import is_workload
from moorage.runtimes.checks.facts import is_own, path_of

_STANDARD_INPUT = "-"
_SUFFIXES = (".yaml", ".yml", ".json")
_MOST_BYTES = 64 * 1024 * 1024


@click.command("check")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option(
    "--facts",
    multiple=True,
    metavar="FILE",
    help="Classes, nodes, profiles, policies and namespaces, as `kubectl get -o yaml` prints them; "
    "no cluster is asked then.",
)
@click.option(
    "--namespace",
    "-n",
    default="default",
    show_default=True,
    help="Namespace of objects that name none.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(FORMATS),
    default="text",
    show_default=True,
    help="Output format.",
)
@click.option("--strict", is_flag=True, help="Let warnings fail the check too.")
@connection_options
def command(
    *,
    files: tuple[str, ...],
    facts: tuple[str, ...],
    namespace: str,
    output: str,
    strict: bool,
    target: Target,
) -> None:
    """Check what pods ask of their classes, before they are created.

    Reads Pods, Deployments, StatefulSets, DaemonSets, ReplicaSets, ReplicationControllers, Jobs,
    CronJobs, PodTemplates and Lists of FILEs, of the YAML and JSON files in them if they are
    directories, or of standard input (-). Classes, profiles and policies are those of the cluster,
    of --facts, and of the FILEs themselves. Objects of our own group in FILEs are checked by the
    definitions of their kinds.

    \b
    Exit status: 0 nothing would be refused · 1 something would be, or could not be read
    """
    manifests, results = _read(files)
    known = _facts(facts, target)
    own = [one for one in manifests if is_own(one.value)]
    valid = [one for one in manifests if not is_own(one.value)]
    for manifest, errors in zip(own, _errors(own), strict=True):
        results += [_invalid(manifest, error, namespace) for error in errors]
        valid += [] if errors else [manifest]
    for manifest in valid:
        _add(known, manifest)
    known.complete_nodes()
    results += check_manifests(manifests, known, namespace)
    click.echo(report(results, output, checked=sum(map(is_workload, manifests))))
    if any(result.level == ERROR or strict for result in results):
        sys.exit(1)


def _errors(own: list[Manifest]) -> list[list[FieldError]]:
    """Return the errors of each object of our group."""
    if not own:
        return []
    # Imported here: rules need a process of their own, and most manifests have none.
    from moorage.runtimes.checks.facts import own_object_errors

    return asyncio.run(own_object_errors([one.value for one in own]))


def _invalid(manifest: Manifest, error: FieldError, namespace: str) -> Result:
    """Return the result of an object that its kind's definition does not allow."""
    value = manifest.value
    meta = value.get("metadata") if isinstance(value.get("metadata"), dict) else {}
    return Result(
        file=manifest.file,
        line=manifest.line(path_of(error)),
        rule="invalid",
        level=ERROR,
        message=error.text,
        kind=str(value.get("kind", "")),
        namespace=str((meta or {}).get("namespace") or namespace),
        name=str((meta or {}).get("name", "")),
        field=error.field,
    )


def _read(names: Iterable[str]) -> tuple[list[Manifest], list[Result]]:
    """Return the manifests of files, and a result for each file that cannot be read."""
    manifests: list[Manifest] = []
    unreadable: list[Result] = []

    def failed(name: str, error: Exception) -> None:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        unreadable.append(Result(file=name, line=1, rule="unreadable", level=ERROR, message=reason))

    for name in _expanded(names, lambda error: failed(str(error.filename), error)):
        try:
            manifests += read_manifests(_text(name), name)
        except (UnreadableError, OSError, UnicodeDecodeError) as error:
            failed(name, error)
    return manifests, unreadable


def _expanded(names: Iterable[str], failed: Callable[[OSError], None]) -> Iterator[str]:
    """Yield files, and the regular ones in directories in the order of their names.

    `failed` is called for a directory that cannot be read.
    """
    for name in names:
        if name == _STANDARD_INPUT or not Path(name).is_dir():
            yield name
            continue
        for directory, directories, files in os.walk(name, onerror=failed):
            directories.sort()
            for file in sorted(files):
                path = Path(directory, file)
                # A link to nothing is an error of the one who reads it, a pipe is no manifest.
                if path.suffix in _SUFFIXES and (path.is_file() or not path.exists()):
                    yield str(path)


def _text(name: str) -> str:
    """Return a file's text. Raises OSError, UnicodeDecodeError, UnreadableError."""
    if name == _STANDARD_INPUT:
        content = sys.stdin.buffer.read(_MOST_BYTES + 1)
    else:
        content = read_regular_file(Path(name), _MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise UnreadableError(f"is larger than {_MOST_BYTES // 2**20} MiB")
    return content.decode()


def _facts(files: tuple[str, ...], target: Target) -> Facts:
    if files:
        context = click.get_current_context()
        for name in ("kubeconfig", "context"):
            if context.params.get(name) is not None:
                raise click.UsageError(f"--facts takes no cluster: leave out --{name}")
        return _facts_of_files(files)
    found, missing = asyncio.run(_ask(target))
    for sentence in missing:
        click.echo(f"moor: {sentence}", err=True)
    return found


def _facts_of_files(files: tuple[str, ...]) -> Facts:
    facts = Facts()

    def failed(error: OSError) -> None:
        raise error

    for name in _expanded(files, failed):
        try:
            manifests = read_manifests(_text(name), name)
        except (UnreadableError, UnicodeDecodeError) as error:
            raise CliError(f"{name}: {error}") from error
        for manifest in manifests:
            _add(facts, manifest)
    return facts


def _add(facts: Facts, manifest: Manifest) -> None:
    try:
        facts.add(manifest.value)
    except FactsError as error:
        raise CliError(f"{manifest.file}:{manifest.line()}: {error}") from error


async def _ask(target: Target) -> tuple[Facts, list[str]]:
    async with target.client("moor-check") as client:
        return await facts_of_cluster(client)
