"""Command group `moor runtime`: installs runtimes into a node's engine, ours or another's."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import click
import msgspec

from moorage.cli.errors import CliError
from moorage.cli.options import cluster_of, data_dir_option, pairs, socket_path
from moorage.cli.output import output_option, show_document
from moorage.cli.verbs import VerbGroup
from moorage.cluster.engine.finding import find_target
from moorage.cluster.engine.target import installer_of
from moorage.cluster.host.packages import install_package_of_host
from moorage.runtimes.installing import Installer, Request, Source
from moorage.runtimes.installing.downloads import HandlerInUseError
from moorage.runtimes.installing.removal import OrphanedClass, consequence, orphaned_classes

_name = click.argument("name")
_FILE = click.Path(path_type=Path, exists=True, dir_okay=False, resolve_path=True)


@click.group("runtime", cls=VerbGroup)
def command() -> None:
    """Add, upgrade and remove runtimes of this machine's engine; pods that run go on.

    The engine is the cluster's. Without a cluster, it is the containerd or CRI-O of this machine,
    which is reloaded or restarted; containers outlive that.
    """


def _engine_options(command: Callable[..., Any]) -> Callable[..., Any]:
    options: tuple[Callable[..., Callable[..., Any]], ...] = (
        data_dir_option,
        click.option("--cri", metavar="ENDPOINT", help="Another engine: unix:///path/to.sock."),
        click.option(
            "--restart-command",
            metavar="COMMAND",
            help="Restarts an engine that is no systemd service.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


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
@_engine_options
@output_option
def add(
    name: str, data_dir: Path, cri: str | None, restart_command: str | None, **source: Any
) -> None:
    """Add a handler, proven by a sandbox; undone if that fails."""
    _install(name, data_dir, cri, restart_command, is_upgrade=False, **source)


@command.command("upgrade")
@_name
@_source_options
@_engine_options
@output_option
def upgrade(
    name: str, data_dir: Path, cri: str | None, restart_command: str | None, **source: Any
) -> None:
    """Give a handler another version; pods that run keep the one that they have."""
    _install(name, data_dir, cri, restart_command, is_upgrade=True, **source)


@command.command("remove")
@_name
@_engine_options
@output_option
@click.option("--force", is_flag=True, help="Although pods run under it; they go on.")
def remove(
    name: str,
    data_dir: Path,
    cri: str | None,
    restart_command: str | None,
    output: str,
    *,
    force: bool,
) -> None:
    """Remove a handler that was added; its versions stay while sandboxes are left under it."""

    async def work(installer: Installer) -> None:
        try:
            is_gone = await installer.remove(name, even_if_used=force)
        except HandlerInUseError as error:
            raise CliError(f"{error}, or give --force, with which they go on") from error
        classes = await _orphaned_classes(data_dir, name)
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

    _run(data_dir, cri, restart_command, work)


async def _orphaned_classes(data_dir: Path, handler: str) -> list[OrphanedClass]:
    """Return the classes of a removed handler, none where no cluster of ours runs."""
    cluster = cluster_of(data_dir)
    if cluster.find_settings() is None or cluster.pid is None:
        return []
    async with cluster.client("moor-runtime") as client:
        return await orphaned_classes(client, handler)


def _install(
    name: str,
    data_dir: Path,
    cri: str | None,
    restart_command: str | None,
    output: str,
    *,
    is_upgrade: bool,
    **source: Any,
) -> None:
    request = _request(name, **source)

    async def work(installer: Installer) -> None:
        if request.source is Source.PACKAGE:
            await install_package_of_host(data_dir, request.origin)
        plan = await installer.install(request, is_upgrade=is_upgrade)
        if output != "table":
            document = {"handler": name, "version": plan.version, "program": str(plan.program)}
            show_document(document | {"file": str(plan.file)}, output)
            return
        past = "upgraded" if is_upgrade else "added"
        click.echo(f"handler {name} {past}: version {plan.version}, {plan.program}")

    _run(data_dir, cri, restart_command, work)


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


def _run(
    data_dir: Path,
    cri: str | None,
    restart_command: str | None,
    work: Callable[[Installer], Awaitable[None]],
) -> None:
    if cri is not None:
        socket_path("--cri", cri)
    target = find_target(cluster_of(data_dir), cri or "")
    restart = shlex.split(restart_command or "")

    def report(sentence: str) -> None:
        click.echo(sentence, err=True)

    async def connected() -> None:
        async with installer_of(target, restart_command=restart, report=report) as installer:
            await work(installer)

    asyncio.run(connected())
