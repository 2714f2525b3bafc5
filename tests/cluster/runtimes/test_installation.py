"""Installations of runtimes that fail: everything is as before."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any, cast

import pytest

from moorage.cluster.runtimes import Installer, Request, RuntimeInstallationError, Source
from moorage.cluster.runtimes.archive import digest_of


class _Engine:
    """An engine that has no handler of `moor runtime`."""

    restart: tuple[str, ...] = ()

    async def written(self) -> frozenset[str]:
        return frozenset()

    async def offered(self) -> tuple[str, ...]:
        return ()


@pytest.mark.parametrize(
    ("type_", "error"),
    [(tarfile.FIFOTYPE, "is refused"), (tarfile.DIRTYPE, "is not an executable file")],
)
async def test_a_failed_installation_leaves_no_directory(
    tmp_path: Path, type_: bytes, error: str
) -> None:
    archive = tmp_path / "a.tar"
    with tarfile.open(archive, "w") as written:
        entry = tarfile.TarInfo("run")
        entry.type = type_
        written.addfile(entry)
    store, handlers = tmp_path / "runtimes", tmp_path / "handlers.d"
    handlers.mkdir()
    request = Request(
        handler="x", source=Source.ARCHIVE, origin=str(archive), program="run",
        digest=digest_of(archive),
    )  # fmt: skip
    # Both fail before the engine is asked for changes.
    installer = Installer(cast(Any, _Engine()), store, handlers, print)
    with pytest.raises(RuntimeInstallationError, match=error):
        await installer.install(request, is_upgrade=False)
    assert [path.name for path in store.iterdir()] == [".lock"]
    assert list(handlers.iterdir()) == []
    (store / "x" / "earlier").mkdir(parents=True)
    with pytest.raises(RuntimeInstallationError, match=error):
        await installer.install(request, is_upgrade=False)
    assert [path.name for path in (store / "x").iterdir()] == ["earlier"]
