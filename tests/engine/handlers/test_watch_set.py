"""Which directories are watched for handlers and programs, and which changes in them count."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage.engine.handlers.watching import WatchSet, watch_set_of
from moorage.linux.inotify import DirectoryChange


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("etc/handlers.d", "bin", "opt/real"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path


def change(directory: Path, name: str = "x", *, uncertain: bool = False) -> list[DirectoryChange]:
    return [DirectoryChange(directory, name, is_uncertain=uncertain)]


def test_a_directory_counts_wholly_and_its_own_entry_above(root: Path) -> None:
    directory = root / "etc/handlers.d"
    interest = watch_set_of([directory], [], "")
    assert interest.directories == {directory, root / "etc"}
    assert interest.concerns(change(directory, "anything"))
    assert interest.concerns(change(root / "etc", "handlers.d"))
    assert not interest.concerns(change(root / "etc", "other"))
    assert not interest.concerns(change(root / "bin", "handlers.d"))


def test_what_does_not_exist_is_awaited_in_the_nearest_directory_above(root: Path) -> None:
    interest = watch_set_of([root / "etc/a/b/c"], [], "")
    assert interest.directories == {root / "etc/a/b/c", root / "etc"}
    assert interest.concerns(change(root / "etc", "a"))
    assert not interest.concerns(change(root / "etc", "b"))


def test_a_program_counts_by_its_name_wherever_it_may_come(root: Path) -> None:
    path = f"{root}/bin::{root}/absent/bin"
    interest = watch_set_of([], ["runc"], path)
    assert interest.directories == {root / "bin", root}
    assert interest.concerns(change(root / "bin", "runc"))
    assert not interest.concerns(change(root / "bin", "crun"))
    assert interest.concerns(change(root, "absent"))


def test_a_spelled_path_is_not_looked_up(root: Path) -> None:
    interest = watch_set_of([], [f"{root}/opt/runsc"], f"{root}/bin")
    assert interest.directories == {root / "opt"}
    assert interest.concerns(change(root / "opt", "runsc"))


def test_links_are_followed_and_watched_themselves(root: Path) -> None:
    (root / "opt/real/runc").touch()
    (root / "bin/runc").symlink_to(root / "opt/real/runc")
    interest = watch_set_of([], ["runc"], f"{root}/bin")
    assert interest.directories == {root / "bin", root / "opt/real"}
    assert interest.concerns(change(root / "opt/real", "runc"))
    linked = root / "link.d"
    linked.symlink_to(root / "etc/handlers.d")
    both = WatchSet()
    both.add_directory(linked)
    assert both.directories == {root / "etc/handlers.d", root, root / "etc"}


def test_changes_without_a_name_or_certainty_always_count(root: Path) -> None:
    interest = watch_set_of([], ["runc"], f"{root}/bin")
    assert interest.concerns(change(root / "elsewhere", "x", uncertain=True))
    assert interest.concerns(change(root / "elsewhere", ""))
    assert not interest.concerns([])
    several = [*change(root / "bin", "crun"), *change(root / "bin", "runc")]
    assert interest.concerns(several)
