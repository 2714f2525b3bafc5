"""A place in a tree: how it is found again, and that nothing stays open."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.linux import descent as module
from moorage.linux.descent import OPEN_LEVELS, Descent
from tests.descriptors import open_descriptors


@pytest.fixture
def root(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "tree").mkdir()
    root = os.open(tmp_path / "tree", os.O_RDONLY | os.O_DIRECTORY)
    before = open_descriptors()
    yield root
    assert open_descriptors() == before
    os.close(root)


@pytest.fixture(params=["openat2", "older kernel"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With openat2(2), and without it."""

    def absent(*_: object) -> int:
        raise OSError(errno.ENOSYS, "no such call")

    if request.param == "older kernel":
        monkeypatch.setattr(module, "openat2", absent)
    return str(request.param)


def chain(tmp_path: Path, depth: int) -> Path:
    place = tmp_path / "tree"
    for number in range(depth):
        place = place / f"d{number}"
    place.mkdir(parents=True)
    return place


@pytest.mark.usefixtures("kernel")
def test_down_and_up_again(tmp_path: Path, root: int) -> None:
    depth = OPEN_LEVELS + 8
    chain(tmp_path, depth)
    with Descent(root) as place:
        before = open_descriptors()
        for number in range(depth):
            status = place.enter(f"d{number}")
            assert status.st_ino == os.fstat(place.directory).st_ino
        assert (place.depth, len(place.names)) == (depth, depth)
        assert open_descriptors() == before + OPEN_LEVELS
        inodes = []
        for number in reversed(range(depth)):
            assert place.leave() == f"d{number}"
            inodes.append(os.fstat(place.directory).st_ino)
        assert place.directory == root
        assert len(set(inodes)) == depth
        place.enter("d0")
        place.restart()
        assert (place.depth, place.names, place.directory) == (0, (), root)
        place.enter("d0")


def test_levels_above_are_reopened_without_looking_from_the_root(
    tmp_path: Path, root: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search from the root at each level would make a deep walk quadratic."""
    depth = 2 * OPEN_LEVELS + 3
    chain(tmp_path, depth)

    def search(_: Descent) -> None:
        pytest.fail("an unmoved parent was looked for from the root")

    monkeypatch.setattr(Descent, "_find_again", search)
    with Descent(root) as place:
        for number in range(depth):
            place.enter(f"d{number}")
        while place.depth:
            place.leave()


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize(
    ("name", "number"),
    [("file", errno.ENOTDIR), ("none", errno.ENOENT)],
)
def test_failed_entry_keeps_the_position(tmp_path: Path, root: int, name: str, number: int) -> None:
    (tmp_path / "tree/file").touch()
    with Descent(root) as place:
        with pytest.raises(OSError, match="directory") as failed:
            place.enter(name)
        assert failed.value.errno == number
        assert place.depth == 0


@pytest.mark.usefixtures("kernel")
def test_a_link_is_not_followed(tmp_path: Path, root: int) -> None:
    (tmp_path / "tree/link").symlink_to(tmp_path)
    with Descent(root) as place:
        with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
            place.enter("link")
        assert place.depth == 0


def test_other_mount_is_entered_only_if_allowed(
    tmp_path: Path, root: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain(tmp_path, 1)
    mounts: list[bytes] = [b"mnt_id: 2", b"mnt_id: 1"]

    def absent(*_: object) -> int:
        raise OSError(errno.ENOSYS, "no such call")

    monkeypatch.setattr(module, "openat2", absent)
    monkeypatch.setattr(module, "mount_id", lambda _: mounts.pop(0))
    with Descent(root) as place:
        with pytest.raises(OSError, match="d0") as failed:
            place.enter("d0")
        assert (failed.value.errno, place.depth, mounts) == (errno.EXDEV, 0, [])
    with Descent(root, crosses_mounts=True) as place:
        place.enter("d0")


def test_refusal_of_openat2_is_not_retried_another_way(
    tmp_path: Path, root: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> int:
        raise OSError(errno.EXDEV, "another mount")

    chain(tmp_path, 1)
    monkeypatch.setattr(module, "openat2", refused)
    with Descent(root) as place, pytest.raises(OSError, match="another mount"):
        place.enter("d0")


def deep(place: Descent, depth: int) -> None:
    for number in range(depth):
        place.enter(f"d{number}")


@pytest.mark.parametrize("is_replaced", [True, False])
def test_a_parent_that_was_moved_away_is_not_gone_up_to(
    tmp_path: Path, root: int, is_replaced: bool
) -> None:
    """With more levels than are open: the last that is open was moved meanwhile."""
    depth = OPEN_LEVELS + 4
    chain(tmp_path, depth)
    top = tmp_path / "tree/d0/d1"
    with Descent(root) as place:
        deep(place, depth)
        while place.depth > 5:
            assert place.leave() == f"d{place.depth}"
        # d4 stands alone now: its parent is not open any more.
        (top / "d2/d3/d4").rename(tmp_path / "away")
        if is_replaced:
            (top / "d2").rename(tmp_path / "old")
            (top / "d2").mkdir()
        assert place.leave() == ("d4" if not is_replaced else None)
        assert place.names == (("d0", "d1") if is_replaced else ("d0", "d1", "d2", "d3"))
        wanted = top if is_replaced else top / "d2/d3"
        assert os.fstat(place.directory).st_ino == wanted.stat().st_ino


def test_a_mount_id_is_the_mounts(tmp_path: Path, root: int) -> None:
    proc = os.open("/proc", os.O_RDONLY)
    inside = os.open(tmp_path / "tree", os.O_RDONLY)
    assert module.mount_id(root) == module.mount_id(inside) != module.mount_id(proc)
    assert module.mount_id(root).startswith(b"mnt_id:")
    os.close(proc)
    os.close(inside)


def test_a_level_that_was_moved_up_is_not_taken_for_a_level_of_the_way(
    tmp_path: Path, root: int
) -> None:
    depth = OPEN_LEVELS + 4
    chain(tmp_path, depth)
    top = tmp_path / "tree/d0/d1"
    with Descent(root) as place:
        deep(place, depth)
        while place.depth > 5:
            place.leave()
        (top / "d2/d3/d4").rename(tmp_path / "away")
        (top / "d2/d3").rename(top / "d3")
        (top / "d2").rename(tmp_path / "old")
        (top / "d2").mkdir()
        assert place.leave() is None
        assert place.names == ("d0", "d1")
        assert os.fstat(place.directory).st_ino == top.stat().st_ino
        assert len(place._identities) == place.depth


def test_a_kernel_without_mount_ids_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "open", lambda *_: io.BytesIO(b"pos:\t0\n"), raising=False)
    with pytest.raises(OSError, match="the kernel does not report mount ids") as caught:
        module.mount_id(0)
    assert caught.value.errno == errno.ENOSYS
