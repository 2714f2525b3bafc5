from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from moorage.apiserver.registry.deletion import UNREAD_OPTION
from moorage.apiserver.storage import SqliteStore
from moorage.cluster.host.findings import Finding, State
from moorage.cluster.layout import Layout
from moorage.inspect.store_findings import examine_store


async def test_the_store_is_read_and_damage_named(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    assert [row.state for row in examine_store(layout)] == [State.OK]
    async with SqliteStore(layout.database, mark=layout.store_mark) as store:
        first = await store.put("pods/default/a", b"text", 0)
        await store.put("pods/default/b", b"text", 0)
        (finding,) = examine_store(layout)
        assert (finding.state, finding.meaning) == (State.OK, "2 changes, none damaged")
    with closing(sqlite3.connect(layout.database)) as connection, connection:
        connection.execute("UPDATE log SET value = x'00' WHERE revision = ?", (first,))
    (finding,) = examine_store(layout)
    assert finding.state is State.WARNING
    assert f"pods/default/a at revision {first} is damaged" in finding.meaning
    assert "ignoreStoreReadError" in finding.remedy


async def test_a_store_that_is_gone_is_a_problem(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    async with SqliteStore(layout.database, mark=layout.store_mark):
        pass
    layout.database.unlink()
    (finding,) = examine_store(layout)
    assert finding.state is State.PROBLEM
    assert "is gone" in finding.meaning


def test_a_store_that_cannot_be_read_is_a_warning(tmp_path: Path) -> None:
    layout = Layout(tmp_path)

    def refuse(path: Path) -> Any:
        raise PermissionError(13, "Permission denied", str(path))

    meaning = f"{layout.database} cannot be read, or is empty"
    assert examine_store(layout, refuse) == (
        Finding("store", State.WARNING, meaning, "run as root: sudo moor …"),
    )


def test_each_damage_and_complaint_is_a_finding(tmp_path: Path) -> None:
    inspection: Any = SimpleNamespace(
        rows=7, damage=("a is damaged", "b is damaged"), complaints=("c",)
    )
    restore = "moor down --keep-pods, put a copy of the db directory back, moor up --accept-loss"
    remove = f"the same, or DELETE the object with ?{UNREAD_OPTION}=true"
    assert examine_store(Layout(tmp_path), lambda _: inspection) == (
        Finding("store", State.WARNING, "a is damaged", remove),
        Finding("store", State.WARNING, "b is damaged", remove),
        Finding("store", State.WARNING, "SQLite: c", restore),
    )


def test_a_store_is_missed_only_once_it_was_made(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    meaning = f"{layout.database} is not made yet"
    assert examine_store(layout) == (Finding("store", State.OK, meaning),)
    layout.store_mark.write_text("store-1\n")
    (finding,) = examine_store(layout)
    assert (finding.state, finding.meaning) == (State.PROBLEM, f"{layout.database} is gone")
    assert finding.remedy.startswith("moor down --keep-pods")
