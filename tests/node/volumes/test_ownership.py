"""Groups and modes of volumes; only the test's own group is used, so no privileges are needed."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from moorage.linux.trees import walk
from moorage.node.volumes.ownership import ON_ROOT_MISMATCH, give_to_group
from tests.nesting import nest

GROUP = os.getgid()


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    root = tmp_path / "volume"
    (root / "dir").mkdir(parents=True)
    (root / "dir/file").write_text("")
    (root / "dir/file").chmod(0o600)
    (root / "link").symlink_to("nowhere")
    for path in (root, root / "dir"):
        path.chmod(0o755)
    return root


def mode(path: Path) -> str:
    return f"{stat.S_IMODE(path.lstat().st_mode):o}"


@pytest.mark.parametrize(
    ("is_read_only", "directory", "file"), [(False, "2775", "660"), (True, "2755", "640")]
)
def test_the_group_may_do_what_the_owner_may(
    volume: Path, is_read_only: bool, directory: str, file: str
) -> None:
    give_to_group(volume, GROUP, is_read_only=is_read_only, policy=None)
    assert [mode(path) for path in (volume, volume / "dir", volume / "dir/file")] == [
        directory,
        directory,
        file,
    ]


def test_a_right_root_is_taken_at_its_word_on_request(volume: Path) -> None:
    give_to_group(volume, GROUP, is_read_only=False, policy=ON_ROOT_MISMATCH)
    (volume / "dir/file").chmod(0o600)
    give_to_group(volume, GROUP, is_read_only=False, policy=ON_ROOT_MISMATCH)
    assert mode(volume / "dir/file") == "600"
    give_to_group(volume, GROUP, is_read_only=False, policy="Always")
    assert mode(volume / "dir/file") == "660"


def test_a_link_itself_is_given_not_what_it_names(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("")
    outside.chmod(0o600)
    volume = tmp_path / "volume"
    volume.mkdir()
    (volume / "link").symlink_to(outside)
    give_to_group(volume, GROUP, is_read_only=False, policy=None)
    assert mode(outside) == "600"


@pytest.mark.slow
@pytest.mark.usefixtures("removed_by_us")
def test_a_tree_of_any_depth_is_given(tmp_path: Path) -> None:
    root = tmp_path / "volume"
    nest(root, 2000)
    group = os.getgid()
    give_to_group(root, group, is_read_only=False, policy=None)
    for visit in walk(root):
        assert visit.status.st_gid == group
        assert visit.status.st_mode & 0o060 == 0o060


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.touch(mode=0o600)
    root = tmp_path / "volume"
    root.mkdir()
    (root / "link").symlink_to(outside)
    give_to_group(root, os.getgid(), is_read_only=False, policy=None)
    assert outside.stat().st_mode & 0o777 == 0o600
