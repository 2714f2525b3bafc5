"""`moor backup` and `moor restore`: what they print, and their exit statuses."""

from __future__ import annotations

from pathlib import Path

from moorage.apiserver.storage import SqliteStore
from moorage.cluster.creation import open_cluster
from moorage.cluster.layout import Layout
from moorage.cluster.settings import Choices
from tests.cli.moor import moor


async def test_a_backup_is_written_and_restored(tmp_path: Path) -> None:
    layout, archive = Layout(tmp_path / "data"), tmp_path / "c.tar.gz"
    open_cluster(layout, Choices(node_name="n1", has_node=False))
    async with SqliteStore(layout.database, mark=layout.store_mark) as store:
        await store.put("a/1", b"value", 0)
    saved = moor("backup", archive, "--data-dir", layout.root)
    assert saved.out == f"{archive}: cluster moorage at revision 1\n"
    refused = moor("restore", archive, "--data-dir", layout.root)
    assert refused.status == 1
    assert "with --replace it is moved aside" in refused.err
    other = tmp_path / "other"
    restored = moor("restore", archive, "--data-dir", other)
    assert restored.out.startswith("restored cluster moorage as of 20")
    assert restored.out.endswith(f", revision 1; `moor up --data-dir {other}` starts it\n")


def test_there_is_nothing_to_back_up_without_a_cluster(tmp_path: Path) -> None:
    answer = moor("backup", tmp_path / "c.tar.gz", "--data-dir", tmp_path / "none")
    assert answer.status == 3
    assert "there is no cluster in" in answer.err
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_no_backup_is_an_error_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("x")
    answer = moor("restore", tmp_path / "x", "--data-dir", tmp_path / "data")
    assert answer.status == 1
    assert answer.err.startswith(f"moor: {tmp_path}/x is not a backup, or is cut off: ")
    missing = moor("restore", tmp_path / "y", "--data-dir", tmp_path / "data")
    assert missing.status == 2
