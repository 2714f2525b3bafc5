"""Versions stay as long as a sandbox may need them."""

from __future__ import annotations

from pathlib import Path

from moorage.cluster.runtimes.versions import Versions, remove_version


def _version(store: Path, name: str) -> None:
    (store / "h" / name).mkdir(parents=True)


def test_a_replaced_version_goes_with_the_last_sandbox_that_began_before(tmp_path: Path) -> None:
    versions = Versions(tmp_path, "h")
    _version(tmp_path, "1")
    versions.note_replaced("1", 100)
    assert versions.remove_unused([]) == ()
    _version(tmp_path, "2")
    versions.note_replaced("2", 200)
    assert versions.remove_unused([150, 250]) == ()
    assert versions.remove_unused([200]) == ()
    assert versions.remove_unused([201]) == ("1",)
    assert [path.name for path in (tmp_path / "h").iterdir()] == ["2"]


def test_a_version_that_is_used_again_is_kept(tmp_path: Path) -> None:
    versions = Versions(tmp_path, "h")
    for name in ("1", "2"):
        _version(tmp_path, name)
    versions.note_replaced("2", 100)
    versions.note_replaced("1", 200)
    assert versions.remove_unused([]) == ("2",)
    assert [path.name for path in (tmp_path / "h").iterdir()] == ["1"]


def test_a_damaged_record_removes_nothing(tmp_path: Path) -> None:
    _version(tmp_path, "1")
    (tmp_path / ".replaced").mkdir()
    (tmp_path / ".replaced" / "h.json").write_text('{"../x": 1, "1": "no"}')
    assert Versions(tmp_path, "h").remove_unused([]) == ()
    (tmp_path / ".replaced" / "h.json").write_text('{"../x": 1}')
    (tmp_path / "x").mkdir()
    assert Versions(tmp_path, "h").remove_unused([]) == ()
    assert (tmp_path / "x").exists()


def test_the_handlers_directory_goes_with_its_only_version(tmp_path: Path) -> None:
    _version(tmp_path, "1")
    _version(tmp_path, "2")
    remove_version(tmp_path / "h" / "1")
    assert (tmp_path / "h" / "2").exists()
    remove_version(tmp_path / "h" / "2")
    assert not (tmp_path / "h").exists()
