from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moorage.node.volumes.atomic import PayloadError, ProjectedFile, write_payload
from tests.clocks import START


def files(**content: str) -> dict[str, ProjectedFile]:
    return {
        name.replace("__", "/"): ProjectedFile(text.encode(), 0o644)
        for name, text in content.items()
    }


def write(target: Path, **content: str) -> bool:
    return write_payload(target, files(**content), START)


def shown(target: Path) -> dict[str, str]:
    """What a program in the container reads: visible names only, links followed."""
    result = {}
    for parent, names, leaves in os.walk(target, followlinks=True):
        names[:] = [name for name in names if not name.startswith("..")]
        for leaf in leaves:
            path = Path(parent) / leaf
            result[str(path.relative_to(target))] = path.read_text()
    return result


def hidden(target: Path) -> list[str]:
    return sorted(
        path.name for path in target.iterdir() if path.name.startswith("..") and path.is_dir()
    )


def test_files_are_seen_through_links(tmp_path: Path) -> None:
    assert write(tmp_path, user="root", sub__key="v")
    assert shown(tmp_path) == {"user": "root", "sub/key": "v"}
    assert os.readlink(tmp_path / "user") == "..data/user"
    assert os.readlink(tmp_path / "sub") == "..data/sub"
    assert os.readlink(tmp_path / "..data").startswith("..2026_01_01_00_00_00.")


def test_an_update_swaps_one_link_and_leaves_no_old_set(tmp_path: Path) -> None:
    write(tmp_path, a="1", b="2")
    before = os.readlink(tmp_path / "..data")
    assert write(tmp_path, b="3", c="4")
    assert shown(tmp_path) == {"b": "3", "c": "4"}
    after = os.readlink(tmp_path / "..data")
    assert before != after
    assert hidden(tmp_path) == sorted(["..data", after])


def test_nothing_is_touched_when_nothing_differs(tmp_path: Path) -> None:
    write(tmp_path, a="1")
    before = os.readlink(tmp_path / "..data")
    assert not write(tmp_path, a="1")
    assert os.readlink(tmp_path / "..data") == before


def test_a_name_that_was_lost_comes_back(tmp_path: Path) -> None:
    write(tmp_path, a="1")
    (tmp_path / "a").unlink()
    assert not write(tmp_path, a="1")
    assert shown(tmp_path) == {"a": "1"}


def test_a_reader_of_the_old_set_keeps_it_open(tmp_path: Path) -> None:
    write(tmp_path, a="old", b="old")
    with (tmp_path / "a").open() as reader:
        write(tmp_path, a="new", b="new")
        assert reader.read() == "old"
    assert shown(tmp_path) == {"a": "new", "b": "new"}


def test_what_a_crash_left_is_cleaned_up(tmp_path: Path) -> None:
    write(tmp_path, a="1")
    (tmp_path / "..2025_01_01_00_00_00.dead").mkdir()
    (tmp_path / "..data_tmp").symlink_to("nowhere")
    write(tmp_path, a="2")
    assert shown(tmp_path) == {"a": "2"}
    assert len(hidden(tmp_path)) == 2


def test_a_failure_before_the_swap_changes_nothing(tmp_path: Path) -> None:
    def fail(_: Path) -> None:
        raise PermissionError("no")

    write(tmp_path, a="1")
    before = hidden(tmp_path)
    with pytest.raises(PermissionError):
        write_payload(tmp_path, files(a="2"), START, finish=fail)
    assert shown(tmp_path) == {"a": "1"}
    assert hidden(tmp_path) == before


def test_ownership_is_set_before_anyone_sees_the_files(tmp_path: Path) -> None:
    seen: list[bool] = []

    def finish(fresh: Path) -> None:
        seen.append((fresh / "a").read_text() == "1" and not (tmp_path / "..data").exists())

    write_payload(tmp_path, files(a="1"), START, finish=finish)
    assert seen == [True]


def test_modes_do_not_depend_on_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        write_payload(tmp_path, {"a": ProjectedFile(b"x", 0o666)}, START)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o666
    assert stat.S_IMODE((tmp_path / "..data").stat().st_mode) == 0o755


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        ("", "must be relative path"),
        ("/etc/passwd", "must be relative path"),
        ("a/../../b", r"must not contain '\.\.'"),
        ("..", r"must not contain '\.\.'"),
        ("..data/x", r"must not start with '\.\.'"),
        ("..2026", r"must not start with '\.\.'"),
        ("a\0b", "must not contain NUL"),
        ("a/" + "b" * 256, "is too long"),
        ("a/" * 2048 + "b", "is too long"),
    ],
)
def test_paths_that_leave_the_volume_are_refused(tmp_path: Path, path: str, complaint: str) -> None:
    with pytest.raises(PayloadError, match=f"invalid path: {complaint}"):
        write_payload(tmp_path, {path: ProjectedFile(b"", 0o644)}, START)
    assert list(tmp_path.iterdir()) == []


payloads = st.dictionaries(st.sampled_from(["a", "b", "c", "s/x", "s/y", "t/x"]), st.binary())


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(payloads, min_size=1, max_size=4))
def test_after_any_updates_exactly_the_last_is_seen(
    tmp_path_factory: pytest.TempPathFactory, updates: list[dict[str, bytes]]
) -> None:
    target = tmp_path_factory.mktemp("volume")
    for update in updates:
        payload = {path: ProjectedFile(content, 0o644) for path, content in update.items()}
        write_payload(target, payload, START)
    result = {
        str(path.relative_to(target / "..data")): path.read_bytes()
        for path in (target / "..data").resolve().rglob("*")
        if path.is_file()
        for path in [target / "..data" / path.relative_to((target / "..data").resolve())]
    }
    assert result == updates[-1]
    tops = {path.name for path in target.iterdir() if not path.name.startswith("..")}
    assert tops == {path.partition("/")[0] for path in updates[-1]}


@pytest.mark.slow
@pytest.mark.usefixtures("removed_by_us")
def test_a_payload_as_deep_as_a_path_can_be(tmp_path: Path) -> None:
    path = "/".join(["d"] * 1500)
    payload = {path: ProjectedFile(b"deep", 0o644)}
    before = os.umask(0o077)
    try:
        assert write_payload(tmp_path, payload, START)
    finally:
        os.umask(before)
    assert not write_payload(tmp_path, payload, START)
    assert (tmp_path / path).read_bytes() == b"deep"
    assert (tmp_path / path).parent.stat().st_mode & 0o777 == 0o755
    assert write_payload(tmp_path, {"flat": ProjectedFile(b"", 0o644)}, START)
    assert not (tmp_path / "d").exists()
