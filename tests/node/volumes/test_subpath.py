from __future__ import annotations

import os
import resource
from pathlib import Path, PurePosixPath

import msgspec
import pytest

from moorage.linux.trees import disk_use
from moorage.node.config.errors import ConfigError
from moorage.node.pod_facts.errors import SyncError
from moorage.node.volumes.subpath import bind_subpath, check_subpath, open_inside
from tests.descriptors import open_descriptors
from tests.node.volumes.mounts import FakeMounter


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    root = tmp_path / "volume"
    (root / "dir").mkdir(parents=True)
    (root / "file").write_text("inside")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("outside")
    return root


def opened(volume: Path, subpath: str) -> Path:
    """Where a subPath leads, as the kernel names the open descriptor."""
    descriptor = open_inside(volume, PurePosixPath(subpath))
    try:
        return Path(os.readlink(f"/proc/self/fd/{descriptor}"))
    finally:
        os.close(descriptor)


@pytest.mark.parametrize(
    ("subpath", "complaint"),
    [
        ("/etc", "error SubPath `/etc` must not be an absolute path"),
        ("a/../b", "unable to provision SubPath `a/../b`: must not contain '..'"),
        ("a\0b", "unable to provision SubPath `a\0b`: must not contain NUL"),
    ],
)
def test_invalid_subpaths_are_rejected(subpath: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_subpath(subpath)
    assert str(caught.value) == complaint


@pytest.mark.parametrize("subpath", ["dir", "file", "./dir", "dir/."])
def test_what_is_there(volume: Path, subpath: str) -> None:
    assert opened(volume, subpath) == volume / subpath


def test_what_is_missing_is_made_as_open_as_the_volume(volume: Path) -> None:
    volume.chmod(0o777)
    assert opened(volume, "new/deeper") == volume / "new/deeper"
    assert (volume / "new/deeper").stat().st_mode & 0o777 == 0o777


@pytest.mark.parametrize(
    ("target", "subpath", "wanted"),
    [
        ("dir", "link", "dir"),
        ("./dir/", "link", "dir"),
        ("dir/../file", "link", "file"),
        ("dir", "link/inner", "dir/inner"),
    ],
)
def test_links_within_the_volume_are_followed(
    volume: Path, target: str, subpath: str, wanted: str
) -> None:
    (volume / "link").symlink_to(target)
    assert opened(volume, subpath) == volume / wanted


def test_an_absolute_link_into_the_volume_is_followed(volume: Path) -> None:
    (volume / "dir/link").symlink_to(volume / "file")
    assert opened(volume, "dir/link") == volume / "file"


@pytest.mark.parametrize(
    "target",
    ["../outside", "../outside/secret", "dir/../../outside", "{root}/outside", "/etc"],
)
@pytest.mark.parametrize("subpath", ["link", "link/secret"])
def test_links_out_of_the_volume_are_refused(volume: Path, target: str, subpath: str) -> None:
    (volume / "link").symlink_to(target.format(root=volume.parent))
    before = sorted(volume.rglob("*"))
    with pytest.raises(ConfigError, match="not within volume path"):
        opened(volume, subpath)
    assert sorted(volume.rglob("*")) == before


def test_a_link_to_a_name_that_is_no_text_is_shown_in_an_error_that_can_be_sent(
    volume: Path,
) -> None:
    os.symlink(b"/\xff\n\xfe", volume / "link")
    with pytest.raises(ConfigError) as caught:
        opened(volume, "link")
    error = SyncError("CreateContainerConfigError", str(caught.value))
    assert str(error) == error.message
    assert error.message.endswith("a symbolic link leads to /\ufffd\n\ufffd")
    assert msgspec.json.encode(error.message)


def test_a_circle_of_links_ends(volume: Path) -> None:
    (volume / "a").symlink_to("b")
    (volume / "b").symlink_to("a")
    with pytest.raises(ConfigError, match="too many symbolic links"):
        opened(volume, "a")


def test_no_descriptor_is_left_open(volume: Path) -> None:
    (volume / "link").symlink_to("../outside")
    before = open_descriptors()
    for subpath in ("dir", "new/deeper", "link", "file/below"):
        try:
            opened(volume, subpath)
        except (ConfigError, OSError):
            continue
    assert open_descriptors() == before


@pytest.mark.parametrize("subpath", ["dir", "file"])
def test_the_part_is_bound_by_its_descriptor(volume: Path, tmp_path: Path, subpath: str) -> None:
    mounter, target = FakeMounter(), tmp_path / "subpaths/v/app/0"
    for _ in range(2):
        bind_subpath(volume, PurePosixPath(subpath), target, mounter)
    assert mounter.binds == {target: volume / subpath}
    assert target.is_dir() == (volume / subpath).is_dir()


@pytest.mark.slow
@pytest.mark.usefixtures("removed_by_us")
def test_a_subpath_as_deep_as_a_path_can_be_needs_few_descriptors(volume: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, before[1]))
    try:
        descriptor = open_inside(volume, PurePosixPath("/".join(["d"] * 1500)))
        os.close(descriptor)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert disk_use([volume / "d"]).inodes == 1500


def test_file_in_the_middle_of_a_subpath_is_rejected(volume: Path) -> None:
    with pytest.raises(NotADirectoryError):
        open_inside(volume, PurePosixPath("file/below"))


def test_a_link_back_to_the_top_from_deep_below(volume: Path) -> None:
    (volume / "a/b").mkdir(parents=True)
    (volume / "a/b/top").symlink_to(volume)
    assert opened(volume, "a/b/top/dir") == volume / "dir"
