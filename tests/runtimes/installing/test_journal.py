"""An interrupted change is undone from its journal, and nothing of others is touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage.runtimes.installing import RuntimeInstallationError
from moorage.runtimes.installing.engines import FileChange
from moorage.runtimes.installing.journal import (
    Entry,
    Journal,
    Stage,
    restore_changes,
    write_changes,
)


def test_what_is_recorded_is_read_again_and_cleared(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "runtimes")
    assert journal.read() is None
    entry = Entry(
        handler="h",
        verb="add",
        stage=Stage.USED,
        changes=(FileChange(Path("/etc/x"), b"\xff\0", None), FileChange(Path("/y"), None, b"a")),
        offered=("", "runc"),
        restart=("systemctl", "restart", "containerd.service"),
    )
    journal.write(entry)
    assert journal.read() == entry
    journal.clear()
    assert journal.read() is None


def test_a_damaged_journal_is_named(tmp_path: Path) -> None:
    (tmp_path / "journal.json").write_bytes(b"{")
    with pytest.raises(RuntimeInstallationError, match=r"journal\.json, the record of an"):
        Journal(tmp_path).read()


@pytest.mark.parametrize("done", [0, 1, 2, 3])
def test_files_come_back_from_any_point(tmp_path: Path, done: int) -> None:
    kept, new, gone = tmp_path / "kept", tmp_path / "d" / "new", tmp_path / "gone"
    kept.write_bytes(b"before")
    kept.chmod(0o640)
    gone.write_bytes(b"there")
    changes = (
        FileChange(kept, b"before", b"after"),
        FileChange(new, None, b"new"),
        FileChange(gone, b"there", None),
    )
    write_changes(changes[:done])
    assert kept.read_bytes() == (b"after" if done else b"before")
    assert gone.exists() == (done < 3)
    restore_changes(changes)
    assert (kept.read_bytes(), gone.read_bytes()) == (b"before", b"there")
    assert kept.stat().st_mode & 0o777 == 0o640
    assert not new.exists()


def test_a_file_that_another_program_changed_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "f"
    change = FileChange(file, b"before", b"after")
    file.write_bytes(b"by another")
    with pytest.raises(RuntimeInstallationError, match="was changed by another program meanwhile"):
        write_changes([change])
    with pytest.raises(RuntimeInstallationError, match="was changed by another program since"):
        restore_changes([change])
    assert file.read_bytes() == b"by another"


def test_the_target_of_a_link_is_replaced_and_not_the_link(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"a")
    (tmp_path / "link").symlink_to("real")
    write_changes([FileChange(tmp_path / "link", b"a", b"b")])
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"b"
