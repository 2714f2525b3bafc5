from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from moorage.linux.trust import distrust
from tests.linux.test_posix_acl import (
    GROUP,
    MASK,
    OTHER,
    OWN_GROUP,
    OWNER,
    USER,
    Entry,
    access_list,
)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    result = tmp_path / "opt/bin/program"
    result.parent.mkdir(parents=True)
    result.touch(mode=0o755)
    return result


def test_what_this_user_or_root_made_is_trusted(program: Path) -> None:
    assert distrust(program) is None
    assert distrust(Path("/bin/sh")) is None
    assert distrust(Path("/")) is None
    assert distrust(program / "absent") is None


@pytest.mark.parametrize(("level", "mode"), [(0, 0o757), (1, 0o777), (2, 0o757), (2, 0o722)])
def test_what_others_can_write_is_not(program: Path, level: int, mode: int) -> None:
    place = (program, *program.parents)[level]
    place.chmod(mode)
    reason = distrust(program)
    assert reason is not None
    assert (reason.path, reason.remedy) == (place, f"chmod go-w {place}")
    assert f"(mode {mode:04o})" in reason.problem


def test_a_directory_with_the_sticky_bit_passes_a_file_does_not(program: Path) -> None:
    program.parent.chmod(0o1777)
    assert distrust(program) is None
    program.chmod(0o1757)
    assert distrust(program) is not None


@pytest.mark.skipif(os.geteuid() != 0, reason="changing owners needs root")
@pytest.mark.parametrize("level", [0, 1, 2])
def test_what_belongs_to_another_is_not(program: Path, level: int) -> None:
    place = (program, *program.parents)[level]
    os.chown(place, 65534, 0)
    reason = distrust(program)
    assert reason is not None
    assert str(reason) == f"{place} belongs to uid 65534, not to root; chown root {place}"


@pytest.mark.skipif(os.geteuid() != 0, reason="changing groups needs root")
def test_a_group_that_writes_is_trusted_when_it_is_roots_alone(program: Path) -> None:
    program.chmod(0o775)
    assert distrust(program) is None
    os.chown(program, 0, 50)
    reason = distrust(program)
    assert reason is not None
    assert reason.problem == "can be written by group 50 (mode 0775)"


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ([(USER, 7, 1000)], "can be written by uid 1000 (access list)"),
        ([(GROUP, 7, 50)], "can be written by group 50 (access list)"),
        ([(USER, 5, 1000), (GROUP, 4, 50)], None),
        ([(USER, 7, os.geteuid()), (GROUP, 7, 0)], None),
    ],
)
def test_what_an_access_list_lets_another_write_is_not(
    program: Path, level: int, entries: list[Entry], problem: str | None
) -> None:
    place = (program, *program.parents)[level]
    others: tuple[Entry, ...] = ((OWNER, 7), (OWN_GROUP, 5), (MASK, 7), (OTHER, 5))
    # The kernel takes them by their tags alone.
    value = access_list(*sorted([*entries, *others]))
    try:
        os.setxattr(place, "system.posix_acl_access", value)
    except OSError as error:
        pytest.skip(f"no access lists here: {error}")
    reason = distrust(program)
    if problem is None:
        assert reason is None
    else:
        assert reason is not None
        assert (reason.path, reason.problem) == (place, problem)
        assert reason.remedy == f"setfacl -b {place}"


def _relative(link: Path, target: Path) -> None:
    link.symlink_to(os.path.relpath(target, link.parent))


def _absolute(link: Path, target: Path) -> None:
    link.symlink_to(target)


@pytest.mark.parametrize("make", [_relative, _absolute])
def test_links_are_followed(
    program: Path, tmp_path: Path, make: Callable[[Path, Path], None]
) -> None:
    link = tmp_path / "usr/link"
    link.parent.mkdir()
    make(link, program)
    assert distrust(link) is None
    program.parent.chmod(0o777)
    reason = distrust(link)
    assert reason is not None
    assert reason.path == program.parent
    program.parent.chmod(0o755)
    link.parent.chmod(0o777)
    reason = distrust(link)
    assert reason is not None
    assert reason.path == link.parent


@pytest.mark.skipif(os.geteuid() != 0, reason="changing owners needs root")
def test_another_users_link_in_a_directory_for_all_is_not_trusted(
    program: Path, tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    (shared / "link").symlink_to(program)
    os.chown(shared / "link", 65534, 65534, follow_symlinks=False)
    assert distrust(shared / "link") is not None


def test_links_in_a_circle_are_not_trusted(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    reason = distrust(tmp_path / "a")
    assert reason is not None
    assert "too many" in reason.problem


@pytest.mark.parametrize(("links", "is_trusted"), [(40, True), (41, False)])
def test_as_many_links_are_followed_as_by_the_kernel(
    program: Path, tmp_path: Path, links: int, is_trusted: bool
) -> None:
    (tmp_path / "0").symlink_to(program)
    for number in range(1, links):
        (tmp_path / str(number)).symlink_to(str(number - 1))
    assert (distrust(tmp_path / str(links - 1)) is None) == is_trusted


def test_a_link_upwards_leads_where_the_kernel_goes(program: Path, tmp_path: Path) -> None:
    (tmp_path / "deep/er").mkdir(parents=True)
    (tmp_path / "deep/er/link").symlink_to("../../opt/bin/program")
    assert distrust(tmp_path / "deep/er/link") is None
    program.parent.chmod(0o777)
    reason = distrust(tmp_path / "deep/er/link")
    assert reason is not None
    assert reason.path == program.parent
