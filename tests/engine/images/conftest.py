"""Stores in a directory of the test, unmounted afterwards, and a registry to pull from."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from moorage.engine.images.store import ImagePaths, ImageStore
from moorage.linux.mounts import current_mounts, mounts_below, unmount
from tests.ports import free_port


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A directory on which nothing stays mounted."""
    if os.geteuid() != 0:
        pytest.skip("layers need root")
    yield tmp_path
    for mount in mounts_below(tmp_path, current_mounts()):
        unmount(mount.point)


@pytest.fixture
def paths(place: Path) -> ImagePaths:
    return ImagePaths(place / "data", place / "run")


@pytest.fixture
async def images(paths: ImagePaths) -> AsyncIterator[ImageStore]:
    async with ImageStore(paths) as store:
        yield store


@dataclass(frozen=True)
class Registry:
    """A registry on this machine, and the directory of its storage."""

    address: str
    storage: Path

    def drop(self, digest: str) -> None:
        """Remove the content of a blob, so that the registry cannot serve it any more."""
        name = digest.removeprefix("sha256:")
        shutil.rmtree(self.storage / "docker/registry/v2/blobs/sha256" / name[:2] / name)

    def push(self, archive: Path, name: str, *options: str) -> str:
        """Put the image of an archive there; its full name."""
        full = f"{self.address}/{name}"
        subprocess.run(
            ["skopeo", "--insecure-policy", "copy", "--quiet", "--dest-tls-verify=false", *options,
             f"oci-archive:{archive}", f"docker://{full}"],
            check=True,
            capture_output=True,
        )  # fmt: skip
        return full


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def serving(directory: Path, more: str = "") -> Iterator[Registry]:
    missing = [name for name in ("docker-registry", "skopeo") if shutil.which(name) is None]
    if os.geteuid() != 0 or missing:
        pytest.skip(f"needs root and {', '.join(missing) or 'nothing else'} installed")
    port = free_port()
    settings = directory / "registry.yml"
    settings.write_text(
        "version: 0.1\nlog: {level: error}\n"
        f"storage: {{filesystem: {{rootdirectory: {directory}}}, delete: {{enabled: true}}}}\n"
        f"http: {{addr: 127.0.0.1:{port}}}\n{more}"
    )
    process = subprocess.Popen(
        ["docker-registry", "serve", str(settings)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 10
        while not _answers(port):
            assert process.poll() is None, "the registry ended"
            assert time.monotonic() < deadline, "the registry does not answer"
            time.sleep(0.02)
        yield Registry(f"127.0.0.1:{port}", directory)
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    yield from serving(tmp_path_factory.mktemp("registry"))
