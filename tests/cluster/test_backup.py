"""Backups and restores of a cluster's files, whole, cut off, changed and hostile."""

from __future__ import annotations

import gzip
import io
import json
import os
import sqlite3
import tarfile
import tracemalloc
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from moorage.apiserver.storage import SqliteStore
from moorage.cluster import restore as restoring
from moorage.cluster.backup import BackupError, back_up, unpack
from moorage.cluster.creation import open_cluster
from moorage.cluster.layout import Layout
from moorage.cluster.restore import restore
from moorage.cluster.settings import Choices, Settings, SettingsError, load
from moorage.cluster.supervision.supervisor import AlreadyRunningError
from tests.cli.moor import locked
from tests.ports import free_port

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "data")


async def a_cluster(layout: Layout, **values: bytes) -> Settings:
    """Create a cluster with these values in its store."""
    settings = open_cluster(layout, Choices(node_name="n1", has_node=False, api_port=free_port()))
    await write(layout, **values)
    return settings


async def write(layout: Layout, **values: bytes) -> None:
    async with SqliteStore(layout.database, mark=layout.store_mark) as store:
        for key, value in values.items():
            await store.put(f"a/{key}", value, 0)


async def read(layout: Layout) -> dict[str, bytes]:
    async with SqliteStore(layout.database, mark=layout.store_mark) as store:
        page = await store.range("")
    return {entry.key: entry.value for entry in page.entries}


def names_in(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def change(archive: Path, edit: Callable[[dict[str, bytes]], None]) -> Path:
    """Return an archive like this one, with its members edited; an edit may add and remove some."""
    with tarfile.open(archive) as tar:
        members = {info.name: tar.extractfile(info).read() for info in tar}  # type: ignore[union-attr]
    edit(members)
    changed = archive.with_name("changed.tar.gz")
    with tarfile.open(changed, "w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return changed


def manifest_of(members: dict[str, bytes], **changes: Any) -> bytes:
    return json.dumps(json.loads(members["manifest.json"]) | changes).encode()


async def test_a_backup_restores_everything_into_an_empty_directory(
    layout: Layout, tmp_path: Path
) -> None:
    settings = await a_cluster(layout, one=b"1")
    archive = tmp_path / "c.tar.gz"
    made = back_up(layout, settings, archive, NOW)
    assert (made.cluster, made.created) == ("moorage", "2026-01-02T03:04:05+00:00")
    assert archive.stat().st_mode & 0o777 == 0o600
    assert names_in(tmp_path) == {"data", "c.tar.gz"}
    other = Layout(tmp_path / "other")
    assert restore(other, archive, replaces=False, now=NOW) == made
    assert other.settings.read_bytes() == layout.settings.read_bytes()
    for path in filter(Path.is_file, layout.pki.iterdir()):
        assert (other.pki / path.name).read_bytes() == path.read_bytes()
    assert not other.unpacked.exists()
    open_cluster(other, Choices(has_node=False, api_port=free_port()))
    assert await read(other) == {"a/one": b"1"}


async def test_what_is_replaced_is_kept(layout: Layout, tmp_path: Path) -> None:
    settings = await a_cluster(layout, one=b"1")
    archive = tmp_path / "c.tar.gz"
    back_up(layout, settings, archive, NOW)
    await write(layout, two=b"2")
    with pytest.raises(BackupError, match="with --replace it is moved aside"):
        restore(layout, archive, replaces=False, now=NOW)
    assert set(await read(layout)) == {"a/one", "a/two"}
    restore(layout, archive, replaces=True, now=NOW)
    open_cluster(layout, Choices(has_node=False, api_port=free_port()))
    assert set(await read(layout)) == {"a/one"}
    (kept,) = layout.replaced.iterdir()
    assert names_in(kept) == {"db", "pki", "cluster.json"}
    with closing(sqlite3.connect(kept / "db" / "state.db")) as connection:
        keys = {key for (key,) in connection.execute("SELECT key FROM log")}
    assert keys == {"a/one", "a/two"}


async def test_a_cluster_that_runs_is_backed_up_and_not_replaced(
    layout: Layout, tmp_path: Path
) -> None:
    settings = await a_cluster(layout, one=b"1")
    archive = tmp_path / "c.tar.gz"
    with locked(layout):
        back_up(layout, settings, archive, NOW)
        with pytest.raises(AlreadyRunningError):
            restore(layout, archive, replaces=True, now=NOW)
    with pytest.raises(BackupError, match="exists; choose another name"):
        back_up(layout, settings, archive, NOW)


@pytest.mark.parametrize("step", range(8))
async def test_a_restore_that_is_cut_off_never_starts_an_empty_cluster_and_can_be_made_again(
    layout: Layout, tmp_path: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = await a_cluster(layout, one=b"1")
    archive = tmp_path / "c.tar.gz"
    back_up(layout, settings, archive, NOW)
    await write(layout, two=b"2")
    calls = 0

    def cut_off(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls > step:
                raise KeyboardInterrupt
            return function(*arguments)

        return run

    with monkeypatch.context() as patch:
        for name in ("rename_durably", "accept_copy"):
            patch.setattr(restoring, name, cut_off(getattr(restoring, name)))
        try:
            restore(layout, archive, replaces=True, now=NOW)
        except KeyboardInterrupt:
            assert calls == step + 1
    if calls > step:
        try:
            open_cluster(layout, Choices(has_node=False, api_port=free_port()))
        except SettingsError:
            pass
        else:
            assert set(await read(layout)) >= {"a/one"}
    later = NOW.replace(hour=4)
    restore(layout, archive, replaces=True, now=later)
    open_cluster(layout, Choices(has_node=False, api_port=free_port()))
    assert set(await read(layout)) == {"a/one"}


_CHANGES: dict[str, tuple[Callable[[dict[str, bytes]], Any], str]] = {
    "no manifest": (lambda m: m.pop("manifest.json"), "does not begin with manifest.json"),
    "no JSON": (lambda m: m.update({"manifest.json": b"{"}), "manifest.json is damaged"),
    "later format": (
        lambda m: m.update({"manifest.json": manifest_of(m, format=9)}),
        "has format 9",
    ),
    "path outside": (
        lambda m: m.update(
            {"manifest.json": manifest_of(m, files={"../x": {"size": 1, "sha256": ""}})}
        ),
        "names '../x', which no backup has",
    ),
    "path below a key": (
        lambda m: m.update(
            {"manifest.json": manifest_of(m, files={"pki/../../x.key": {"size": 1, "sha256": ""}})}
        ),
        "which no backup has",
    ),
    "nothing": (lambda m: m.update({"manifest.json": manifest_of(m, files={})}), "lacks state.db"),
    "another file": (lambda m: m.update({"x": b"x"}), "'x' is not what manifest.json lists"),
    "file missing": (lambda m: m.pop("pki/ca.key"), "is cut off: pki/ca.key is missing"),
    "other content": (
        lambda m: m.update({"cluster.json": m["cluster.json"].replace(b"n1", b"n2")}),
        "cluster.json is damaged: its SHA-256",
    ),
    "longer": (
        lambda m: m.update({"cluster.json": m["cluster.json"] + b" "}),
        "is not what manifest.json lists",
    ),
}


@pytest.mark.parametrize("name", _CHANGES)
async def test_changed_archives_are_refused_and_nothing_is_replaced(
    layout: Layout, tmp_path: Path, name: str
) -> None:
    settings = await a_cluster(layout, one=b"1")
    back_up(layout, settings, tmp_path / "c.tar.gz", NOW)
    edit, message = _CHANGES[name]
    changed = change(tmp_path / "c.tar.gz", edit)
    with pytest.raises(BackupError, match=message):
        restore(layout, changed, replaces=True, now=NOW)
    assert set(await read(layout)) == {"a/one"}
    assert not layout.replaced.exists()
    assert not layout.unpacked.exists()


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99])
async def test_archives_that_are_cut_off_are_refused(
    layout: Layout, tmp_path: Path, share: float
) -> None:
    settings = await a_cluster(layout, one=b"1")
    whole = tmp_path / "c.tar.gz"
    back_up(layout, settings, whole, NOW)
    cut = tmp_path / "cut.tar.gz"
    cut.write_bytes(whole.read_bytes()[: int(whole.stat().st_size * share)])
    (tmp_path / "out").mkdir()
    with pytest.raises(BackupError, match=r"is not a backup|is cut off"):
        unpack(cut, tmp_path / "out")


async def test_a_link_in_an_archive_is_refused(layout: Layout, tmp_path: Path) -> None:
    settings = await a_cluster(layout, one=b"1")
    back_up(layout, settings, tmp_path / "c.tar.gz", NOW)
    hostile = tmp_path / "h.tar.gz"
    with tarfile.open(tmp_path / "c.tar.gz") as tar, tarfile.open(hostile, "w:gz") as out:
        for info in tar:
            if info.name == "state.db":
                link = tarfile.TarInfo("state.db")
                link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
                out.addfile(link)
            else:
                out.addfile(info, tar.extractfile(info))
    (tmp_path / "out").mkdir()
    with pytest.raises(BackupError, match=r"'state\.db' is not a plain file"):
        unpack(hostile, tmp_path / "out")


async def test_damage_inside_the_compression_is_reported(layout: Layout, tmp_path: Path) -> None:
    settings = await a_cluster(layout, one=b"1")
    whole = tmp_path / "c.tar.gz"
    back_up(layout, settings, whole, NOW)
    content = whole.read_bytes()
    damaged = tmp_path / "d.tar.gz"
    for share in range(1, 20):
        middle = len(content) * share // 20
        damaged.write_bytes(content[:middle] + b"\xff" * 40 + content[middle + 40 :])
        (tmp_path / f"out{share}").mkdir()
        with pytest.raises(BackupError):
            unpack(damaged, tmp_path / f"out{share}")


@pytest.mark.parametrize("type_", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE])
def test_a_name_of_any_length_is_refused_unread(tmp_path: Path, type_: bytes) -> None:
    name = tarfile.TarInfo("name")
    name.type, name.size = type_, 64 << 20
    with gzip.open(tmp_path / "h.tar.gz", "wb", 1) as file:
        file.write(name.tobuf(tarfile.GNU_FORMAT))
        for _ in range(64):
            file.write(bytes(1 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(BackupError, match="is not a plain file"):
            unpack(tmp_path / "h.tar.gz", tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_a_pipe_is_refused_and_not_waited_for(layout: Layout, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(BackupError, match="it is not a regular file"):
        restore(layout, pipe, replaces=False, now=datetime.now(UTC))


def test_a_manifest_of_any_depth_is_refused(tmp_path: Path) -> None:
    archive = tmp_path / "deep.tar.gz"
    content = b'{"format": ' + b"[" * 50_000
    with tarfile.open(archive, "w:gz") as tar:
        info = tarfile.TarInfo("manifest.json")
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
    with pytest.raises(BackupError, match="is damaged"):
        unpack(archive, tmp_path)


def test_settings_of_any_depth_are_damaged(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_bytes(b'{"x": ' + b"[" * 50_000)
    with pytest.raises(SettingsError, match="is damaged"):
        load(file)
