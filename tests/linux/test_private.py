from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.linux.idmap import IdMappings, IdRange
from moorage.linux.trust import PASSABLE, PRIVATE, make_private, make_private_for, write_private


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(params=[0, 0o022, 0o077, 0o777])
def _umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.usefixtures("_umask")
@pytest.mark.parametrize("wanted", [PRIVATE, PASSABLE])
def test_directories_have_their_modes_whatever_the_umask(tmp_path: Path, wanted: int) -> None:
    path = tmp_path / "a/b"
    make_private(path, wanted)
    assert (mode(path), mode(path.parent)) == (wanted, wanted)


def test_what_is_there_is_tightened_and_keeps_its_content(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.mkdir()
    (path / "file").touch()
    path.chmod(0o777)
    make_private(path)
    assert mode(path) == 0o700
    assert (path / "file").exists()


def test_what_all_share_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "tmp"
    path.mkdir()
    path.chmod(0o1777)
    make_private(path)
    assert mode(path) == 0o1777


@pytest.mark.skipif(os.geteuid() != 0, reason="changing groups needs root")
def test_root_of_a_user_namespace_goes_through_by_its_group(tmp_path: Path) -> None:
    mappings = IdMappings((IdRange(0, 100_000, 10),), (IdRange(0, 200_000, 10),))
    make_private_for(tmp_path / "own", mappings)
    stat_result = (tmp_path / "own").stat()
    assert (stat_result.st_uid, stat_result.st_gid, stat.S_IMODE(stat_result.st_mode)) == (
        0,
        200_000,
        0o710,
    )
    make_private_for(tmp_path / "other", None)
    assert mode(tmp_path / "other") == 0o700


@pytest.mark.usefixtures("_umask")
def test_files_are_their_owners_whatever_they_were(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    write_private(path, b"one")
    assert (mode(path), path.read_bytes()) == (0o600, b"one")
    path.chmod(0o666)
    write_private(path, b"2")
    assert (mode(path), path.read_bytes()) == (0o600, b"2")
    link = tmp_path / "link"
    link.symlink_to(path)
    with pytest.raises(OSError, match="symbolic links"):
        write_private(link, b"3")


def test_what_is_private_already_is_not_changed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a directory of another owner that is right needs no privilege."""
    make_private(tmp_path / "a")
    changes: list[Path] = []
    monkeypatch.setattr(Path, "chmod", lambda path, _mode: changes.append(path))
    make_private(tmp_path / "a")
    assert changes == []
    make_private(tmp_path / "a", PASSABLE)
    assert changes == [tmp_path / "a"]
