"""Versions stay as long as a sandbox may need them."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from moorage.runtimes.installing import Request, Source, plan_installation
from moorage.runtimes.installing.downloads import RuntimeInstallationError
from moorage.runtimes.installing.versions import Versions, measure, remove_version, store_version


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


def test_what_a_killed_run_was_storing_goes_with_its_version(tmp_path: Path) -> None:
    _version(tmp_path, "1")
    (tmp_path / "h" / ".new-abc" / "content").mkdir(parents=True)
    remove_version(tmp_path / "h" / "2")
    assert [path.name for path in (tmp_path / "h").iterdir()] == ["1"]
    (tmp_path / "g" / ".new-abc").mkdir(parents=True)
    remove_version(tmp_path / "g" / "2")
    assert not (tmp_path / "g").exists()


def test_a_program_that_is_stored_under_another_name_is_there_under_both(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"content")
        request = Request(handler="h", source=Source.BINARY, origin=str(tmp_path / name))
        plan = plan_installation(request, "ab" * 32, tmp_path / "store", tmp_path)
        store_version(request, plan)
        assert plan.program.read_bytes() == b"content"
        assert plan.program.stat().st_mode & 0o777 == 0o755
    assert {path.name for path in plan.program.parent.iterdir()} == {"a", "b"}
    assert [path.name for path in (tmp_path / "store" / "h").iterdir()] == ["abababababab"]


def test_a_version_is_on_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_bytes(b"content")
    synced, sync = list[tuple[str, bool]](), os.fsync
    directory = tmp_path / "store" / "h" / "abababababab"

    def fsync(descriptor: int) -> None:
        sync(descriptor)
        name = Path(os.readlink(f"/proc/self/fd/{descriptor}")).name
        synced.append((name, directory.exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    request = Request(handler="h", source=Source.BINARY, origin=str(tmp_path / "a"))
    store_version(request, plan_installation(request, "ab" * 32, tmp_path / "store", tmp_path))
    assert synced == [("a", False), ("content", False), ("h", True)]


@pytest.mark.parametrize(("mode", "problem"), [(0o600, "executable"), (0o755, "does not have")])
def test_no_message_has_the_digest_of_a_file_of_the_host(
    tmp_path: Path, mode: int, problem: str
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("root:hash\n")
    secret.chmod(mode)
    request = Request(handler="h", source=Source.BINARY, origin=str(secret), digest="0" * 64)
    with pytest.raises(RuntimeInstallationError, match=problem) as failure:
        measure(request)
    digest = hashlib.sha256(secret.read_bytes()).hexdigest()
    assert digest[:12] not in str(failure.value)
