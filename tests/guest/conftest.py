"""The guest that MOORAGE_GUEST names, booted once, with this tree's Moorage in it.

Its disk of files has the wheel, one of a former commit, the next version's wheel, images, and the
kubelet of MOORAGE_KUBERNETES_BIN.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.cluster.images import catalogue, write_archive
from tests.guest.kubelet import WITHIN_S, Node, start
from tests.guest.machine import FILES, Guest, booted, unusable
from tests.guest.preparation import VENV
from tests.interchange.programs import VARIABLE as KUBERNETES
from tests.interchange.programs import required
from tools.image.python import REPOSITORY, build_wheel

VARIABLE = "MOORAGE_GUEST"
FORMER_VERSION, NEXT_VERSION = "0.0.1", "999.0"
_FORMER = "6a91c31aee6a"
"""The commit of the former version. Take a later one when the change log names a change
of the records of the engine."""
INSTALL = f"{VENV}/bin/pip install --quiet --no-index --no-deps --no-compile"
"""Compiling everything would take minutes in an emulated guest."""


_SLOWEST_S = 3600


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if {"guest", "node"}.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.timeout(_SLOWEST_S))


@pytest.fixture(scope="session")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guest]:
    named = os.environ.get(VARIABLE)
    if not named:
        pytest.skip(f"{VARIABLE} names no guest: make guest")
    directory = Path(named)
    if reason := unusable(directory):
        pytest.skip(reason)
    files = tmp_path_factory.mktemp("files")
    fill(files)
    with booted(directory, files) as machine:
        machine.must(f"{INSTALL} {FILES}/now/*.whl")
        yield machine


def fill(files: Path) -> None:
    """Write what the guest is given into a directory. Skips without busybox."""
    busybox = shutil.which("busybox")
    if busybox is None:
        pytest.skip("busybox-static is not installed: make packages")
    wheel = build_wheel(files / "now", 0)
    _write_as(NEXT_VERSION, wheel, files / NEXT_VERSION)
    with tempfile.TemporaryDirectory(prefix="former-") as name:
        former = Path(name)
        if _check_out(_FORMER, former / "tree"):
            old_wheel = build_wheel(former / "wheel", 0, former / "tree")
            _write_as(FORMER_VERSION, old_wheel, files / FORMER_VERSION)
    images = asyncio.run(catalogue(Path(busybox), None))
    (files / "images.tar").write_bytes(write_archive(images))
    kubelet = shutil.which("kubelet", path=os.environ.get(KUBERNETES, ""))
    if kubelet is not None:
        shutil.copy(kubelet, files / "kubelet")


def _check_out(commit: str, place: Path) -> bool:
    """Write a commit's files; return whether this clone has the commit."""
    place.mkdir()
    archive = place.with_name("former.tar")
    done = subprocess.run(
        ["git", "archive", "--output", str(archive), commit],
        cwd=REPOSITORY, capture_output=True, check=False, timeout=60,
    )  # fmt: skip
    if done.returncode:
        return False
    shutil.unpack_archive(archive, place, filter="data")
    return True


def _write_as(other_version: str, wheel: Path, place: Path) -> None:
    """Write a wheel of the same content as another version's."""
    place.mkdir()
    name, version, *rest = wheel.name.split("-")
    before, after = f"{name}-{version}", f"{name}-{other_version}"
    other = place / "-".join([name, other_version, *rest])
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(other, "w") as new:
        for entry in old.infolist():
            content = old.read(entry)
            if entry.filename.endswith(("/METADATA", "/RECORD")):
                content = content.replace(before.encode(), after.encode())
                content = content.replace(
                    f"\nVersion: {version}".encode(), f"\nVersion: {other_version}".encode()
                )
            if entry.filename == "moorage/__init__.py":
                content = content.replace(f'"{version}"'.encode(), f'"{other_version}"'.encode())
            new.writestr(
                entry.filename.replace(f"{before}.dist-info", f"{after}.dist-info"), content
            )


@pytest.fixture(scope="session")
def node(guest: Guest) -> Iterator[Node]:
    """The guest with the unit of the page and a kubelet."""
    required("kubelet")
    yield start(guest)
    guest.must("systemctl stop kubelet moorage-engine", within_s=WITHIN_S)
