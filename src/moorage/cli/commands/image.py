"""Command group `moor image`: lists, loads, imports, saves and removes images."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from moorage.cli.completion import complete_images
from moorage.cli.connection import target_of
from moorage.cli.engines import endpoint_of, own_endpoint_of
from moorage.cli.factory import factory
from moorage.cli.options import cluster_of, data_dir_option
from moorage.cli.output import output_option, show
from moorage.cli.verbs import VerbGroup
from moorage.cluster import Cluster
from moorage.cluster.engine.paths import engine_paths
from moorage.cluster.images.listing import ListedImage, list_images, remove_image
from moorage.cluster.images.loading import load_archive
from moorage.cluster.images.rootfs import read_rootfs, write_image
from moorage.cluster.images.saving import save_archive
from moorage.engine.images.manifest import Platform as MachinePlatform
from moorage.linux.program import Platform
from moorage.wire.cri.reference import InvalidReferenceError, parse

_COLUMNS = ("image", "id", "size", "pinned")
_SHORT_ID = 12
_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.group("image", cls=VerbGroup)
def command() -> None:
    """List, load, import, save and remove images of the cluster's engine."""


@command.command("list")
@data_dir_option
@output_option
def list_(data_dir: Path, *, output: str) -> None:
    """List the images of this machine's engine with their names and sizes.

    Images of a cluster elsewhere are on its nodes, and not listed.
    """
    cluster = _chosen(data_dir)
    images = asyncio.run(list_images(endpoint_of(cluster, cluster.running_settings())))
    show([row for image in images for row in _rows(image, output)], _COLUMNS, output)


@command.command("remove")
@click.argument("images", nargs=-1, required=True, shell_complete=complete_images)
@data_dir_option
def remove(images: tuple[str, ...], data_dir: Path) -> None:
    """Remove images, by name or id, under all their names. Containers that use them go on."""
    cluster = _chosen(data_dir)
    endpoint = endpoint_of(cluster, cluster.running_settings())
    for image in images:
        names = asyncio.run(remove_image(endpoint, image))
        click.echo(f"removed {', '.join(names)}")


@command.command("load")
@click.argument("archives", nargs=-1, required=True, type=_FILE)
@data_dir_option
def load(archives: tuple[Path, ...], data_dir: Path) -> None:
    """Load images from OCI or Docker archives (`skopeo copy … oci-archive:FILE:NAME`).

    Prints the names of those that were loaded.
    """
    cluster = _chosen(data_dir)
    endpoint = own_endpoint_of(cluster, cluster.running_settings())
    for archive in archives:
        with _progress(f"loading {archive}", archive.stat().st_size):
            names = asyncio.run(load_archive(endpoint, archive))
        for name in names:
            click.echo(name)


@command.command("import")
@click.argument("archive", type=_FILE)
@click.argument("name", metavar="NAME[:TAG]")
@data_dir_option
def import_(archive: Path, name: str, data_dir: Path) -> None:
    """Make an image of a root file system archive: .tar, .tar.gz or .tar.zst.

    Such as `debootstrap`, `docker export` or `tar -C ROOT -cf FILE .` give. The image starts
    /bin/sh where the archive has it, and nothing by itself otherwise.
    """
    try:
        reference = parse(name)
    except InvalidReferenceError as error:
        raise click.UsageError(str(error)) from error
    if reference.digest:
        raise click.UsageError(f"{name}: an import takes a name with a tag, not a digest")
    cluster = _chosen(data_dir)
    endpoint, layout = own_endpoint_of(cluster, cluster.running_settings()), cluster.layout
    machine = MachinePlatform.of_this_machine()
    platform = Platform(machine.architecture, machine.variants[0])
    layout.images.mkdir(mode=0o700, exist_ok=True)
    image_archive = layout.images / f"import-{os.getpid()}.tar"
    try:
        with _progress(f"importing {archive}", archive.stat().st_size):
            write_image(image_archive, reference.full, platform, read_rootfs(archive))
            names = asyncio.run(load_archive(endpoint, image_archive))
    finally:
        image_archive.unlink(missing_ok=True)
    for loaded_name in names:
        click.echo(loaded_name)


@command.command("save")
@click.argument("images", nargs=-1, required=True, shell_complete=complete_images)
@click.option(
    "--output", "-o", "archive", required=True, type=click.Path(path_type=Path, dir_okay=False),
    help="The OCI archive to write.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
@data_dir_option
def save(images: tuple[str, ...], archive: Path, data_dir: Path, *, force: bool) -> None:
    """Save images to an OCI archive for another engine (`ctr image import`, `podman load`).

    The images made of this machine's programs (moorage.local/…) need no running cluster and keep
    their ids, as with --cri. Others come from the cluster's own engine.
    """
    cluster = _chosen(data_dir)
    settings = cluster.find_settings()
    has_engine = (
        settings is not None and settings.has_node and not settings.cri and cluster.pid is not None
    )
    endpoint = engine_paths(cluster.layout, settings).endpoint if settings and has_engine else ""
    saved = asyncio.run(save_archive(cluster.layout, endpoint, images, archive, overwrites=force))
    for image in saved:
        click.echo(image.name)
        if not image.is_exact:
            click.echo(
                f"moor: {image.name} was packed again: its files are the same, its id is "
                f"{_short(image.id)} now",
                err=True,
            )


def _rows(image: ListedImage, output: str) -> Iterator[dict[str, Any]]:
    """Yield a row for each name in a table, one row for the image in a document."""
    whole = {
        "id": image.id,
        "tags": list(image.tags),
        "digests": list(image.digests),
        "size_bytes": image.size_bytes,
        "pinned": image.pinned,
    }
    if output != "table":
        yield whole
        return
    for name in image.tags or image.digests or ("(no name)",):
        yield {
            "image": name,
            "id": _short(image.id),
            "size": _size(image.size_bytes),
            "pinned": image.pinned,
        }


def _short(image_id: str) -> str:
    return image_id.removeprefix("sha256:")[:_SHORT_ID]


def _size(count: int) -> str:
    return f"{count / 2**20:.1f} MiB"


@contextmanager
def _progress(what: str, size_bytes: int) -> Iterator[None]:
    """Print the running operation on standard error and, on a terminal, its elapsed seconds."""
    sentence = f"{what} ({_size(size_bytes)})"
    if not sys.stderr.isatty():
        click.echo(sentence, err=True)
        yield
        return
    began, done = time.monotonic(), threading.Event()
    progress_s = factory().progress_s

    def tick() -> None:
        while not done.wait(progress_s):
            click.echo(f"\r{sentence} {time.monotonic() - began:.0f} s", nl=False, err=True)

    click.echo(sentence, nl=False, err=True)
    ticking = threading.Thread(target=tick, daemon=True)
    ticking.start()
    try:
        yield
    finally:
        done.set()
        ticking.join()
        click.echo(f"\r{sentence} {time.monotonic() - began:.1f} s", err=True)


def _chosen(data_dir: Path) -> Cluster:
    """Return the cluster of this machine that KUBECONFIG or the data directory names.

    Where KUBECONFIG names a cluster elsewhere, says that the images are not that one's.
    """
    source = click.get_current_context().get_parameter_source("data_dir")
    is_given = source is not None and source is not ParameterSource.DEFAULT
    target = target_of(None, None, data_dir, is_directory_given=is_given)
    if target.cluster is not None:
        return target.cluster
    cluster = cluster_of(data_dir)
    click.echo(
        f"moor: KUBECONFIG names another cluster, whose images are on its nodes; this is the "
        f"engine of the cluster in {cluster.layout.root}",
        err=True,
    )
    return cluster
