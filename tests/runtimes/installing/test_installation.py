"""Installations of runtimes that fail: everything is as before."""

from __future__ import annotations

import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from moorage.runtimes.installing import Installer, Request, RuntimeInstallationError, Source
from moorage.runtimes.installing.archive import digest_of
from moorage.runtimes.installing.engines import FileChange
from moorage.runtimes.installing.plan import Plan


class _Engine:
    """An engine that has no handler of `moor runtime`."""

    restart: tuple[str, ...] = ()
    changes_running = False

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


class _SharedEngine(_Engine):
    """An engine of one handler, whose containers use what its file says at present."""

    changes_running = True

    def __init__(self, directory: Path, *, works: bool) -> None:
        self.directory = directory
        self.works = works
        self.taken: list[str] = []
        self.cri: Any = None

    async def written(self) -> frozenset[str]:
        return frozenset(path.name for path in self.directory.iterdir())

    async def offered(self) -> tuple[str, ...]:
        return tuple(sorted(await self.written()))

    async def addition(self, plan: Plan) -> tuple[FileChange, ...]:
        return (self._change(plan.handler, plan.definition),)

    async def removal(self, handler: str) -> tuple[FileChange, ...]:
        return (self._change(handler, None),)

    def _change(self, handler: str, after: bytes | None) -> FileChange:
        path = self.directory / handler
        return FileChange(path, path.read_bytes() if path.exists() else None, after)

    async def take_over(self, plan: Plan) -> None:
        self.taken.append(plan.handler)
        if not self.works:
            raise RuntimeInstallationError(f"handler {plan.handler} does not work")

    async def drop(self, handler: str) -> None:
        self.taken.append(f"-{handler}")

    async def take_back(self, offered: Sequence[str], restart: Sequence[str]) -> None:
        self.taken.append(f"{' '.join(offered)} {restart}")


@pytest.mark.parametrize("works", [True, False])
async def test_a_version_is_tried_apart_where_running_containers_would_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, works: bool
) -> None:
    async def no_sandboxes(*_: object) -> list[object]:
        return []

    monkeypatch.setattr("moorage.runtimes.installing.installation.sandboxes_of", no_sandboxes)
    handlers, store = tmp_path / "handlers", tmp_path / "runtimes"
    handlers.mkdir()
    (handlers / "x").write_text("earlier")
    program = tmp_path / "run"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    engine = _SharedEngine(handlers, works=works)
    installer = Installer(cast(Any, engine), store, handlers, print)
    request = Request(handler="x", source=Source.BINARY, origin=str(program))
    if works:
        await installer.install(request, is_upgrade=True)
        assert engine.taken == ["moorage-trial", "-moorage-trial", "x"]
        assert b"binary" in (handlers / "x").read_bytes()
    else:
        with pytest.raises(RuntimeInstallationError, match="tried apart from pods first") as error:
            await installer.install(request, is_upgrade=True)
        assert "everything is as before" in str(error.value)
        assert engine.taken == ["moorage-trial", "x ()"]
        assert (handlers / "x").read_text() == "earlier"
    assert [path.name for path in handlers.iterdir()] == ["x"]
