from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from moorage.cluster.doctor import State
from moorage.cluster.layout import Layout
from moorage.cluster.store_findings import examine_store
from moorage.storage import SqliteStore


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
