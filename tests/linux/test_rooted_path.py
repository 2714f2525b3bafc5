"""Paths of a process with another root: its links lead nowhere else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from moorage.linux.rooted_path import path_in_root, stat_in_root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a root with a directory, a file, and links in all ways."""
    top = tmp_path / "root"
    (top / "a/b").mkdir(parents=True)
    (top / "a/file").write_text("inside")
    (tmp_path / "outside").mkdir()
    for name, target in {
        "absolute": "/a/b",
        "relative": "a/b",
        "a/up": "../../../../a/file",
        "through": "/absolute/../file",
        "escape": str(tmp_path / "outside"),
        "process": "/proc/1/root",
        "loop": "/loop",
    }.items():
        (top / name).symlink_to(target)
    return top


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/", "."),
        ("/a/b", "a/b"),
        ("/a/../../a/b/", "a/b"),
        ("/absolute", "a/b"),
        ("/relative", "a/b"),
        ("/a/up", "a/file"),
        ("/through", "a/file"),
    ],
)
def test_links_are_followed_inside_the_root(root: Path, path: str, expected: str) -> None:
    assert os.path.samestat(stat_in_root(root, Path(path)), os.stat(root / expected))


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("/escape", FileNotFoundError),
        ("/process", FileNotFoundError),
        ("/absent/x", FileNotFoundError),
        ("/a/file/x", NotADirectoryError),
        ("/loop", OSError),
    ],
)
def test_none_leads_out_of_it(root: Path, path: str, error: type[OSError]) -> None:
    before = os.listdir("/proc/self/fd")
    with pytest.raises(error):
        stat_in_root(root, Path(path))
    assert os.listdir("/proc/self/fd") == before


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/", "."),
        ("/a/b", "a/b"),
        ("/absolute", "absolute"),
        ("/absolute/x", "a/b/x"),
        ("/a/up/../b", "a/b"),
        ("/escape/x/y", None),
        ("/absent/x/y", "absent/x/y"),
        ("/a/file/x", "a/file/x"),
    ],
)
def test_the_directories_above_a_path_are_followed_inside_the_root(
    root: Path, path: str, expected: str | None
) -> None:
    before = os.listdir("/proc/self/fd")
    found = path_in_root(root, Path(path))
    assert os.listdir("/proc/self/fd") == before
    if expected is None:
        # The first name that the root lacks, and what is below it, as far as the link leads.
        assert found == root / (root.parent / "outside/x/y").relative_to("/")
        assert not found.exists()
    else:
        assert found == root / expected


def test_a_loop_of_links_above_a_path_is_an_error(root: Path) -> None:
    with pytest.raises(OSError, match="Too many levels"):
        path_in_root(root, Path("/loop/x"))


def test_the_root_of_a_process_is_one(tmp_path: Path) -> None:
    found = stat_in_root(Path("/proc/self/root"), tmp_path)
    assert os.path.samestat(found, os.stat(tmp_path))
