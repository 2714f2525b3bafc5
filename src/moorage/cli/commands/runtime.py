"""Command group `moor runtime`: installs runtimes into the cluster's own engine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import click
import msgspec

from moorage.cli.errors import CliError
from moorage.cli.options import cluster_of, data_dir_option, pairs
from moorage.cli.output import output_option, show_document
from moorage.cluster.engine.paths import engine_paths
from moorage.cluster.host import gather
from moorage.cluster.packages import install_package
from moorage.cluster.runtimes import Installer, Request, Source
from moorage.cluster.runtimes.removal import consequence, orphaned_classes
from moorage.cri import CriClient

_name = click.argument("name")
_FILE = click.Path(path_type=Path, exists=True, dir_okay=False, resolve_path=True)


@click.group("runtime")
def command() -> None:
    """Add, upgrade and remove runtimes of the cluster's own engine; pods that run go on."""


def _source_options(command: Callable[..., Any]) -> Callable[..., Any]:
    options = (
        click.option("--binary", type=_FILE, help="The runtime itself; it is copied."),
        click.option("--archive", type=_FILE, help="A tar archive with the runtime."),
        click.option("--package", metavar="NAME", help="A Debian package; apt-get installs it."),
        click.option("--sha256", "digest", metavar="HEX", help="Digest; an archive needs it."),
        click.option("--program", metavar="PATH", help="The runtime in archive or package."),
        click.option("--version", help="Name of this version; of the digest by default."),
        click.option("--adapter", type=click.Choice(["oci", "runsc", "shim"])),
        click.option("--option", "options", multiple=True, metavar="KEY=VALUE",
                     help="Option of the adapter, as in a handler file."),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


@command.command("add")
@_name
@_source_options
@data_dir_option
@output_option
def add(name: str, data_dir: Path, **source: Any) -> None:
    """Add a handler, proven by a sandbox; undone if that fails."""
    _install(name, data_dir, is_upgrade=False, **source)


@command.command("upgrade")
@_name
@_source_options
@data_dir_option
@output_option
def upgrade(name: str, data_dir: Path, **source: Any) -> None:
    """Give a handler another version; pods that run keep the one that they have."""
    _install(name, data_dir, is_upgrade=True, **source)


@command.command("remove")
@_name
@data_dir_option
@output_option
def remove(name: str, data_dir: Path, output: str) -> None:
    """Remove a handler that was added; its versions stay while pods run under it."""

    async def work(installer: Installer) -> None:
        is_gone = await installer.remove(name)
        async with cluster_of(data_dir).client("moor-runtime") as client:
            classes = await orphaned_classes(client, name)
        if output != "table":
            left = msgspec.to_builtins(classes)
            show_document({"handler": name, "versions_left": not is_gone, "classes": left}, output)
            return
        click.echo(f"handler {name} removed")
        if classes:
            click.echo(consequence(classes), err=True)
        if not is_gone:
            click.echo(
                f"sandboxes run under it, so {installer.store / name} stays: remove it again later",
                err=True,
            )

    _run(data_dir, work)


def _install(name: str, data_dir: Path, output: str, *, is_upgrade: bool, **source: Any) -> None:
    request = _request(name, **source)

    async def work(installer: Installer) -> None:
        if request.source is Source.PACKAGE:
            await install_package(request.origin, await gather(data_dir))
        plan = await installer.install(request, is_upgrade=is_upgrade)
        if output != "table":
            document = {"handler": name, "version": plan.version, "program": str(plan.program)}
            show_document(document | {"file": str(plan.file)}, output)
            return
        past = "upgraded" if is_upgrade else "added"
        click.echo(f"handler {name} {past}: version {plan.version}, {plan.program}")

    _run(data_dir, work)


def _request(
    name: str,
    *,
    binary: Path | None,
    archive: Path | None,
    package: str | None,
    digest: str | None,
    program: str | None,
    version: str | None,
    adapter: str | None,
    options: tuple[str, ...],
) -> Request:
    given: dict[Source, Path | str] = {
        source: origin
        for source, origin in (
            (Source.BINARY, binary),
            (Source.ARCHIVE, archive),
            (Source.PACKAGE, package),
        )
        if origin is not None
    }
    if len(given) != 1:
        raise click.UsageError("give one of --binary, --archive and --package")
    ((source, origin),) = given.items()
    return Request(
        handler=name,
        source=source,
        origin=str(origin),
        program=program or "",
        digest=(digest or "").lower(),
        version=version or "",
        adapter=adapter or "",
        options=pairs("--option", options),
    )


def _run(data_dir: Path, work: Callable[[Installer], Awaitable[None]]) -> None:
    cluster = cluster_of(data_dir)
    settings = cluster.running_settings()
    if settings.cri or not settings.has_node:
        raise CliError(
            "runtimes are added to the cluster's own engine only: for another engine, write its "
            "configuration by hand"
        )
    paths = engine_paths(cluster.layout, settings)

    async def connected() -> None:
        async with CriClient(paths.endpoint) as cri:
            await work(Installer(cri, cluster.layout.runtimes, paths.data / "handlers.d"))

    asyncio.run(connected())
