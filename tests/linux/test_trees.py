from __future__ import annotations

import errno
import fcntl
import os
import random
import resource
import stat
import struct
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from moorage.linux import trees
from moorage.linux.mounts import bind, is_mount_point, mount, unmount_all
from moorage.linux.trees import (
    DiskUse,
    Step,
    disk_use,
    make_directories,
    make_directory,
    remove_directories,
    remove_entry,
    remove_tree,
    walk,
)
from tests.descriptors import open_descriptors
from tests.nesting import nest

pytestmark = pytest.mark.usefixtures("removed_by_us")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
DEPTH = 100_000 if os.environ.get("MOORAGE_FUZZ") else 5_000
ROUNDS = 200 if os.environ.get("MOORAGE_FUZZ") else 10
_FS_IOC_SETFLAGS = 0x40086602
_IMMUTABLE, _APPEND_ONLY = 0x10, 0x20


@contextmanager
def few_descriptors(count: int = 96) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def set_flags(path: Path, flags: int) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.ioctl(descriptor, _FS_IOC_SETFLAGS, struct.pack("i", flags))
    except OSError as error:
        pytest.skip(f"no file flags here: {error}")
    finally:
        os.close(descriptor)


def names_in(root: Path) -> list[tuple[Step, str]]:
    return [(visit.step, visit.name) for visit in walk(root)]


def test_a_tree_of_any_depth_is_walked_measured_and_removed_with_few_descriptors(
    tmp_path: Path,
) -> None:
    root = tmp_path / "deep"
    nest(root, DEPTH)
    with few_descriptors():
        visits = [visit.step for visit in walk(root)]
        assert visits.count(Step.ENTER) == visits.count(Step.LEAVE) == DEPTH + 1
        assert disk_use([root]).inodes == DEPTH + 2
        remove_tree(root)
    assert not root.exists()


def test_a_walk_enters_before_and_leaves_after_what_is_inside(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "directory/file").touch()
    assert names_in(tmp_path) == [
        (Step.ENTER, "."),
        (Step.ENTER, "directory"),
        (Step.OTHER, "file"),
        (Step.LEAVE, "directory"),
        (Step.LEAVE, "."),
    ]


def test_links_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    root = tmp_path / "root"
    root.mkdir()
    (root / "link").symlink_to(outside)
    (root / "broken").symlink_to("absent")
    assert {name for _, name in names_in(root)} == {".", "broken", "link"}
    remove_tree(root)
    assert (outside / "kept").exists()


def test_a_link_as_the_root_is_removed_and_not_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/file").touch()
    (tmp_path / "link").symlink_to("kept")
    remove_tree(tmp_path / "link")
    assert not (tmp_path / "link").is_symlink()
    assert (tmp_path / "kept/file").exists()


@pytest.mark.parametrize("path", ["absent", "absent/below", "file/below"])
def test_removal_of_an_absent_tree_is_no_error(tmp_path: Path, path: str) -> None:
    (tmp_path / "file").touch()
    remove_tree(tmp_path / path)
    assert disk_use([tmp_path / "absent"]) == DiskUse(0, 0)


def test_odd_file_types_and_undecodable_names_are_removed(tmp_path: Path) -> None:
    root = os.fsencode(tmp_path / "root")
    os.mkdir(root)
    os.mkdir(root + b"/\xff\xfe\n")
    os.mkfifo(root + b"/\xff\xfe\n/fifo")
    os.mkdir(root + b"/" + b"\xe9" * 255)
    (tmp_path / "root/file").touch(mode=0)
    assert len(list(walk(tmp_path / "root"))) == 8
    remove_tree(tmp_path / "root")
    assert not (tmp_path / "root").exists()


def test_a_file_is_removed_too(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    remove_tree(tmp_path / "file")
    assert not (tmp_path / "file").exists()


def test_a_name_is_removed_from_an_open_directory_alone(tmp_path: Path) -> None:
    nest(tmp_path / "one", 3)
    (tmp_path / "other").touch()
    place = os.open(tmp_path, os.O_RDONLY)
    remove_entry(place, "one")
    os.close(place)
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_several_names_of_a_file_count_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 100_000)
    one = disk_use([tmp_path])
    os.link(tmp_path / "file", tmp_path / "again")
    assert disk_use([tmp_path]) == one
    (tmp_path / "sparse").touch()
    os.truncate(tmp_path / "sparse", 1 << 30)
    assert disk_use([tmp_path]).size_bytes < 1 << 20


def test_directories_take_disk_too(tmp_path: Path) -> None:
    before = disk_use([tmp_path])
    for number in range(10):
        (tmp_path / str(number)).mkdir()
    assert disk_use([tmp_path]).inodes == before.inodes + 10


@needs_root
@pytest.mark.parametrize("is_file", [False, True])
def test_removal_stops_at_a_bind_mount_of_the_same_file_system(
    tmp_path: Path, is_file: bool
) -> None:
    precious = tmp_path / "precious"
    root = tmp_path / "root"
    point = root / "a/b/point"
    point.parent.mkdir(parents=True)
    if is_file:
        precious.write_text("data")
        point.touch()
    else:
        precious.mkdir()
        (precious / "data").touch()
        point.mkdir()
    (root / "a/other").touch()
    bind(precious, point)
    try:
        assert disk_use([root]).inodes == (5 if is_file else 4)
        with pytest.raises(OSError, match="a/b/point") as caught:
            remove_tree(root)
        assert caught.value.errno == errno.EBUSY
        assert is_file or (precious / "data").exists()
        assert precious.exists()
        assert not (root / "a/other").exists(), "what can be removed is removed"
    finally:
        unmount_all(point)
    remove_tree(root)
    assert precious.exists()
    assert not root.exists()


@needs_root
def test_removal_of_a_mount_point_itself_is_refused(tmp_path: Path) -> None:
    point = tmp_path / "point"
    point.mkdir()
    mount("test", point, "tmpfs", "size=1m")
    try:
        (point / "data").touch()
        with pytest.raises(OSError, match="mounted") as caught:
            remove_tree(point)
        assert caught.value.errno == errno.EBUSY
        assert is_mount_point(point)
        assert (point / "data").exists()
    finally:
        unmount_all(point)


@needs_root
@pytest.mark.parametrize("flags", [_IMMUTABLE, _APPEND_ONLY])
def test_immutable_files_and_directories_are_removed(tmp_path: Path, flags: int) -> None:
    root = tmp_path / "root"
    (root / "inner").mkdir(parents=True)
    (root / "inner/file").touch()
    (root / "inner/empty").mkdir()
    for path in (root / "inner/file", root / "inner/empty", root / "inner"):
        set_flags(path, flags)
    remove_tree(root)
    assert not root.exists()


@needs_root
def test_another_user_removes_what_is_his_whatever_its_mode(tmp_path: Path) -> None:
    root = tmp_path / "root"
    nest(root, 40)
    for directory, _, _ in os.walk(root, topdown=False):
        os.chown(directory, 65534, 65534)
        os.chmod(directory, 0)
    os.chown(tmp_path, 65534, 65534)
    place = os.open(tmp_path, os.O_RDONLY)
    child = os.fork()
    if not child:
        status = 1
        try:
            # The directories above are the tests' own, and closed to that user.
            os.fchdir(place)
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            remove_tree(Path("root"))
            status = 0
        finally:
            os._exit(status)
    os.close(place)
    assert os.waitpid(child, 0)[1] == 0
    assert not root.exists()


@needs_root
def test_entry_that_cannot_be_removed_is_named_and_the_rest_is_removed(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for number in range(5):
        (root / str(number)).mkdir(parents=True)
    mount("test", root / "2", "tmpfs", "size=1m")
    try:
        with pytest.raises(OSError, match=f"{root}/2"):
            remove_tree(root)
        assert [path.name for path in root.iterdir()] == ["2"]
    finally:
        unmount_all(root / "2")


def test_a_writer_that_adds_meanwhile_is_outlasted(tmp_path: Path) -> None:
    root = tmp_path / "root"
    nest(root, 20)
    has_ended = threading.Event()

    def write() -> None:
        number = 0
        while root.exists() and number < 2000:
            number += 1
            try:
                (root / "directory-with-a-name" / f"new-{number}").mkdir()
            except FileNotFoundError:
                continue
        has_ended.set()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        while root.exists():
            try:
                remove_tree(root)
            except OSError as error:
                if error.errno != errno.ENOTEMPTY:
                    raise
    finally:
        writer.join()
    assert has_ended.is_set()


def test_a_tree_moved_away_while_it_is_walked_ends_the_walk_of_it_alone(tmp_path: Path) -> None:
    root = tmp_path / "root"
    nest(root, 200, name="d")
    (root / "sibling").mkdir()
    steps = []
    for visit in walk(root):
        steps.append(visit)
        if visit.step is Step.OTHER and visit.name == "last":
            # Everything that is not open any more is gone from where it was.
            (root / "d/d/d").rename(tmp_path / "moved")
    assert {"sibling", "."} <= {visit.name for visit in steps}
    assert steps[-1].name == "."
    assert steps[-1].step is Step.LEAVE


def test_files_removed_while_their_directory_is_read_are_left_out(tmp_path: Path) -> None:
    files = {"a", "b", "c"}
    for name in files:
        (tmp_path / name).touch()
    visited = []
    for visit in walk(tmp_path):
        if visit.step is Step.OTHER:
            visited.append(visit.name)
            for name in files - {visit.name}:
                (tmp_path / name).unlink(missing_ok=True)
    assert len(visited) == 1


def test_tree_moved_during_removal_does_not_escape_its_root(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    root = tmp_path / "root"
    stopped = threading.Event()
    nest(root, 300, name="d")

    def move() -> None:
        number = 0
        # Not all the time, or this thread would keep the other from running.
        while not stopped.wait(0.0005):
            number += 1
            try:
                (root / "d/d/d/d").rename(outside / f"moved-{number}")
            except OSError:
                continue

    mover = threading.Thread(target=move)
    mover.start()
    try:
        for _ in range(3):
            remove_tree(root)
            # In place at once: `nest` must not lose what it makes to the other thread.
            fresh = tmp_path / "fresh"
            nest(fresh, 300, name="d")
            fresh.rename(root)
    finally:
        stopped.set()
        mover.join()
    assert (outside / "kept").exists()


def test_a_file_system_that_takes_no_directories_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        make_directories(Path("/proc/none/below"))


def test_directories_are_made_as_deep_as_a_path_can_be(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["d"] * 1900)
    make_directories(deep, 0o700)
    assert deep.is_dir()
    make_directories(deep)
    assert stat.S_IMODE((tmp_path / "d").stat().st_mode) == 0o700
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        make_directories(tmp_path / "file")
    with pytest.raises(NotADirectoryError):
        make_directories(tmp_path / "file/below")
    (tmp_path / "dangling").symlink_to("absent")
    with pytest.raises(FileExistsError):
        make_directories(tmp_path / "dangling")


def test_random_trees_are_walked_whole_and_removed(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 30) if ROUNDS > 10 else 8
    chance = random.Random(seed)
    for _ in range(ROUNDS):
        root = tmp_path / "root"
        root.mkdir()
        directories, count = [os.fsencode(root)], 1
        for _ in range(chance.randrange(150)):
            above = chance.choice(directories)
            name = bytes(chance.choice(b"ab\xff\n ") for _ in range(chance.randrange(1, 20)))
            path = above + b"/" + name
            if os.path.lexists(path) or len(path) > 3000:
                continue
            count += 1
            kind = chance.randrange(4)
            if kind < 2:
                os.mkdir(path, chance.choice((0o700, 0o755)))
                directories.append(path)
            elif kind == 2:
                os.symlink(chance.choice(directories), path)
            else:
                os.mkfifo(path)
        use = subprocess.run(
            ["find", root, "-printf", "%b\n"], capture_output=True, check=True, text=True
        )
        blocks = sum(map(int, use.stdout.split()))
        assert disk_use([root]) == DiskUse(blocks * 512, count), f"seed {seed}"
        remove_tree(root)
        assert not root.exists(), f"seed {seed}"


def test_directories_are_their_owners_alone_unless_another_mode_is_given(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        make_directory(tmp_path / "private")
        make_directories(tmp_path / "deep/private")
        os.umask(0o077)
        make_directory(tmp_path / "open", 0o755)
        make_directories(tmp_path / "deep/open", 0o711)
    finally:
        os.umask(before)
    modes = {"private": 0o700, "deep": 0o700, "deep/private": 0o700, "open": 0o755,
             "deep/open": 0o711}  # fmt: skip
    result = {name: stat.S_IMODE((tmp_path / name).stat().st_mode) for name in modes}
    assert result == modes


@needs_root
def test_what_a_link_leads_to_stays_immutable_when_the_link_goes(tmp_path: Path) -> None:
    kept, root = tmp_path / "kept", tmp_path / "root"
    kept.touch()
    root.mkdir()
    (root / "link").symlink_to(kept)
    set_flags(kept, _IMMUTABLE)
    try:
        set_flags(root, _IMMUTABLE)
        remove_tree(root / "link")
        assert list(root.iterdir()) == []
        with pytest.raises(PermissionError):
            kept.unlink()
    finally:
        set_flags(kept, 0)


@needs_root
def test_a_fifo_in_an_immutable_directory_is_removed_without_being_opened(tmp_path: Path) -> None:
    """To open it would block until a writer comes."""
    root = tmp_path / "root"
    root.mkdir()
    os.mkfifo(root / "fifo")
    set_flags(root, _IMMUTABLE)
    remove_tree(root / "fifo")
    assert list(root.iterdir()) == []


@needs_root
def test_removal_leaves_no_descriptor_open(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "inner").mkdir(parents=True)
    (root / "inner/file").touch()
    set_flags(root / "inner", _IMMUTABLE)
    before = open_descriptors()
    remove_tree(root)
    assert disk_use([tmp_path]).inodes == 1
    assert open_descriptors() == before


@needs_root
def test_a_directory_of_another_user_is_named_with_its_own_reason(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "closed/below").mkdir(parents=True)
    (root / "closed").chmod(0o700)
    (root / "file").touch()
    for path in (root, tmp_path):
        os.chown(path, 65534, 65534)
    place = os.open(tmp_path, os.O_RDONLY)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.fchdir(place)
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            remove_tree(Path("root"))
        except OSError as error:
            os.write(writing, f"{error.errno} {error.filename}".encode())
        finally:
            os._exit(0)
    for descriptor in (place, writing):
        os.close(descriptor)
    os.waitpid(child, 0)
    assert os.read(reading, 1000).decode() == f"{errno.EPERM} ./root/closed"
    os.close(reading)
    assert sorted(file.name for file in root.iterdir()) == ["closed"]


@pytest.mark.parametrize("count", [7, 8, 9, 16, 100])
def test_a_walk_of_many_directories_visits_each_once_and_holds_few_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(trees, "_WALK_AT_ONCE", 8)
    most: list[int] = []
    usual = trees._Level.read_next

    def counted(level: Any, directory: int) -> bool:
        found = usual(level, directory)
        most.append(len(level.names))
        return found

    monkeypatch.setattr(trees._Level, "read_next", counted)
    names = {f"d{number}" for number in range(count)}
    for name in names:
        (tmp_path / "root" / name / "below").mkdir(parents=True)
    visits = names_in(tmp_path / "root")
    for step in (Step.ENTER, Step.LEAVE):
        visited = [name for seen, name in visits if seen is step and name.startswith("d")]
        assert len(visited) == count
        assert set(visited) == names
    assert max(most, default=0) < max(count, 9)
    assert disk_use([tmp_path / "root"]).inodes == 1 + 2 * count


@pytest.mark.parametrize("levels", [1, 3])
def test_names_of_many_directories_are_not_all_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, levels: int
) -> None:
    monkeypatch.setattr(trees, "_AT_ONCE", 8)
    monkeypatch.setattr(trees, "_LEAST_AT_ONCE", 2)
    monkeypatch.setattr(trees, "_TRIES", 0)
    waiting: list[int] = []
    usual = trees._Removal._descend

    def counted(removal: Any, name: str) -> None:
        usual(removal, name)
        names = [name for level in removal._pending for name in level]
        assert len(names) == removal._waiting
        waiting.append(len(names))

    monkeypatch.setattr(trees._Removal, "_descend", counted)
    root = tmp_path / "root"
    places = [root]
    for _ in range(levels):
        places = [place / f"{number}" for place in places for number in range(12)]
    for place in places:
        place.mkdir(parents=True)
        (place / "file").touch()
    remove_tree(root)
    assert not root.exists()
    assert max(waiting) <= 8 + 2 * levels


@pytest.mark.parametrize(("additions", "is_removed"), [(1, True), (100, True), (101, False)])
def test_what_is_added_while_a_directory_is_removed_is_removed_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, additions: int, is_removed: bool
) -> None:
    """Up to a hundred times; then the program that adds is quicker, and that is an error."""
    root = tmp_path / "root"
    (root / "inner").mkdir(parents=True)
    rmdir, added = os.rmdir, [0]

    def add_and_remove(name: str, *, dir_fd: int) -> None:
        if name == "inner" and added[0] < additions:
            added[0] += 1
            (root / "inner/new").touch()
        rmdir(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "rmdir", add_and_remove)
    if is_removed:
        remove_tree(root)
    else:
        with pytest.raises(OSError, match="not empty") as caught:
            remove_tree(root)
        assert caught.value.filename == str(root / "inner")
    assert root.exists() != is_removed
    assert added == [additions]


def test_a_directory_that_the_kernel_keeps_is_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "root/inner").mkdir(parents=True)
    rmdir, calls = os.rmdir, list[str]()

    def refuse(name: str, *, dir_fd: int) -> None:
        calls.append(name)
        if name == "inner":
            raise OSError(errno.EIO, "Input/output error")
        rmdir(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "rmdir", refuse)
    with pytest.raises(OSError, match="Input/output") as caught:
        remove_tree(tmp_path / "root")
    assert caught.value.filename == str(tmp_path / "root/inner")
    assert calls == ["inner", "root"]


def test_directories_that_another_process_removes_meanwhile_are_no_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "root" / "a" / "b").mkdir(parents=True)
    rmdir = os.rmdir

    def twice(name: str, *, dir_fd: int | None = None) -> None:
        rmdir(name, dir_fd=dir_fd)
        if dir_fd is not None:
            rmdir(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "rmdir", twice)
    remove_directories(tmp_path / "root")
    assert not (tmp_path / "root").exists()


def test_a_directory_that_cannot_be_read_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "root" / "a").mkdir(parents=True)

    def scandir(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(OSError, match="Input/output error") as caught:
        remove_tree(tmp_path / "root")
    assert caught.value.filename == f"{tmp_path}/root/."


def test_links_of_a_file_count_once_and_do_not_end_the_count(tmp_path: Path) -> None:
    (tmp_path / "linked").touch()
    for number in range(20):
        (tmp_path / f"link{number}").hardlink_to(tmp_path / "linked")
        (tmp_path / f"file{number}").touch()
    assert disk_use([tmp_path]).inodes == 22
