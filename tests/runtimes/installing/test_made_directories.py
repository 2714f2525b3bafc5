"""Directories that are made for runtimes are recorded first, and go when they are empty."""

from __future__ import annotations

import os
from pathlib import Path

from moorage.runtimes.installing.journal import MadeDirectories, made_with, missing_above


def test_directories_go_inside_out_and_those_with_content_stay(tmp_path: Path) -> None:
    outer, inner, used = tmp_path / "a", tmp_path / "a" / "b", tmp_path / "used"
    made = MadeDirectories(tmp_path / "store")
    assert not made.is_recorded
    made.note([inner, outer, used, tmp_path / "never-made"])
    inner.mkdir(parents=True)
    used.mkdir()
    (used / "file").touch()
    assert made.remove_empty() == [used]
    assert not outer.exists()
    assert MadeDirectories(tmp_path / "store").all() == (used,)
    (used / "file").unlink()
    assert made.remove_empty(lambda path: Path(f"/proc/self/root{path}")) == []
    assert not used.exists()
    assert made.is_recorded


def test_what_has_taken_the_place_of_a_directory_stays_and_keeps_no_other(tmp_path: Path) -> None:
    link, file, made = tmp_path / "link", tmp_path / "file", tmp_path / "a"
    target = tmp_path / "target"
    target.mkdir()
    record = MadeDirectories(tmp_path / "store")
    record.note([link, file, file / "below", made])
    link.symlink_to(target)
    file.touch()
    made.mkdir()
    assert record.remove_empty() == []
    assert (link.is_symlink(), target.is_dir(), file.is_file()) == (True, True, True)
    assert not made.exists()


def test_a_damaged_record_removes_nothing(tmp_path: Path) -> None:
    made = MadeDirectories(tmp_path)
    made.note([])
    assert made.is_recorded
    (record,) = tmp_path.iterdir()
    record.write_text("[1]")
    assert made.all() == ()


def test_what_is_missing_above_a_file_is_found(tmp_path: Path) -> None:
    path = tmp_path / "etc" / "moorage.d" / "file"
    assert missing_above([path]) == [path.parent, path.parent.parent]
    path.parent.mkdir(parents=True)
    assert missing_above([path]) == []


def test_a_directory_that_was_there_before_a_pod_is_not_taken_for_made_with_it(
    tmp_path: Path,
) -> None:
    pod, made, full = tmp_path / "pod", tmp_path / "made", tmp_path / "full"
    for path in (pod, made, full):
        path.mkdir()
    (full / "config.toml").touch()
    assert made_with(pod, [made, full, tmp_path / "absent"]) == [made]
    # No directory of this machine is younger than its root.
    old = Path("/proc/self/root")
    assert abs(os.stat(old).st_ctime - os.stat(pod).st_ctime) > 60
    assert made_with(old, [made]) == []
