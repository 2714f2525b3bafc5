"""The engines that the tests of this directory share, and who calls them."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from moorage.cluster.images import catalogue, write_archive
from moorage.wire.cri import CriClient
from tests.engine.whole.engines import Caller, RunningEngine, an_engine, skip_where_no_engine_runs


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory, crun_has_cgroups: None) -> Path:
    """Images in a file: made from this machine's busybox, so that no registry is needed."""
    del crun_has_cgroups
    skip_where_no_engine_runs()
    busybox, catatonit = shutil.which("busybox"), shutil.which("catatonit")
    images = asyncio.run(
        catalogue(Path(busybox or "busybox"), Path(catatonit) if catatonit else None)
    )
    file = tmp_path_factory.mktemp("images") / "images.tar"
    file.write_bytes(write_archive(images))
    return file


@pytest.fixture(scope="module")
def engine(archive: Path) -> Iterator[RunningEngine]:
    """One engine for the tests of a file."""
    with an_engine(archive) as engine:
        yield engine


@pytest.fixture
async def caller(engine: RunningEngine) -> AsyncIterator[Caller]:
    """Calls to the file's engine; the test's pods are removed after it."""
    async with CriClient(engine.endpoint) as cri:
        caller = Caller(engine, cri)
        try:
            yield caller
        finally:
            await caller.remove_all()
