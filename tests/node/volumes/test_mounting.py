from __future__ import annotations

from pathlib import Path

from moorage.node.volumes.mounting import SystemMounter, mount_points


def test_spaces_and_others_are_escaped_in_mountinfo() -> None:
    text = (
        b"20 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
        b"21 20 0:5 / /var/a\\040b\\134c rw shared:1 - tmpfs tmpfs rw\n"
        b"broken\n"
    )
    assert list(mount_points(text)) == [Path("/"), Path("/var/a b\\c")]


def test_the_deepest_mounts_come_first() -> None:
    found = list(SystemMounter().mounts_below(Path("/")))
    assert found[-1] == Path("/")
    depths = [len(each.parts) for each in found]
    assert depths == sorted(depths, reverse=True)


def test_a_sibling_with_the_same_beginning_is_not_below() -> None:
    assert list(SystemMounter().mounts_below(Path("/pro"))) == []


def test_unmounting_where_nothing_is_mounted_is_no_error(tmp_path: Path) -> None:
    SystemMounter().unmount(tmp_path / "gone")
