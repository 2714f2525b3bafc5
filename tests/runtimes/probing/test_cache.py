"""Cache of probe results: files that are damaged, old, or too many."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from moorage.api.runtime_group import ProfileFeature
from moorage.runtimes.probing import cache as cache_module
from moorage.runtimes.probing.cache import ProbeCache, ProbedHandler, ProbeRecord
from moorage.runtimes.probing.fingerprint import Digests, fingerprint

_PRINT = "a" * 64
_PROBED = ProbedHandler(
    kernel="6.1",
    isolation="shared-kernel",
    features=(ProfileFeature(name="exec", state="Supported", message="it printed"),),
    probed_at="2026-01-01T00:00:00Z",
    probes={"plain": ProbeRecord("ended", 0, "", "text")},
)


def test_a_result_is_found_again_and_no_other(tmp_path: Path) -> None:
    ProbeCache(tmp_path / "results").store(_PRINT, _PROBED)
    cache = ProbeCache(tmp_path / "results")
    assert cache.load(_PRINT) == _PROBED
    assert cache.load("b" * 64) is None
    assert cache.all() == (_PROBED,)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"format": 99}', b"\xff\xfe", b"null"])
def test_a_damaged_file_is_ignored_and_replaced(tmp_path: Path, content: bytes) -> None:
    cache = ProbeCache(tmp_path)
    (tmp_path / f"{_PRINT}.json").write_bytes(content)
    (tmp_path / "programs.json").write_bytes(content)
    assert cache.load(_PRINT) is None
    assert isinstance(cache.load_digests(), Digests)
    cache.store(_PRINT, _PROBED)
    assert cache.load(_PRINT) == _PROBED


def test_a_file_that_is_cut_short_anywhere_is_ignored(tmp_path: Path) -> None:
    cache = ProbeCache(tmp_path)
    cache.store(_PRINT, _PROBED)
    path = tmp_path / f"{_PRINT}.json"
    whole = path.read_bytes()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        assert cache.load(_PRINT) is None


def test_the_oldest_results_go(tmp_path: Path) -> None:
    cache = ProbeCache(tmp_path)
    for number in range(70):
        cache.store(f"{number:064x}", _PROBED)
    assert len(list(tmp_path.iterdir())) == 64
    assert cache.load(f"{69:064x}") is not None


def test_the_oldest_result_is_that_which_was_written_first(tmp_path: Path) -> None:
    cache = ProbeCache(tmp_path)
    names = [f"{number:064x}" for number in range(64)]
    for age, name in enumerate(names):
        cache.store(name, _PROBED)
        os.utime(tmp_path / f"{name}.json", (1_000_000 - age, 1_000_000 - age))
    other = tmp_path / "programs.json"
    other.write_text("{}")
    os.utime(other, (1, 1))
    cache.store("f" * 64, _PROBED)
    left = {path.stem for path in tmp_path.iterdir()}
    assert left == {*names[:-1], "f" * 64, "programs"}


def test_a_directory_that_cannot_be_written_keeps_nothing_and_fails_nothing(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_text("")
    cache = ProbeCache(tmp_path / "file" / "results")
    cache.store(_PRINT, _PROBED)
    assert cache.load(_PRINT) is None


def test_a_program_is_read_once_for_each_state(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"one")
    digests = Digests()
    first = digests.of(program)
    again = Digests(digests.remembered, lambda _: "read again")
    assert again.of(program) == first
    program.write_bytes(b"another")
    assert again.of(program) == "read again"
    assert digests.of(tmp_path / "none") == ""


def test_a_fingerprint_depends_on_all_its_parts() -> None:
    parts = {"definition": "d", "programs": ("p",), "engine": "e", "kernel": "k"}
    base = fingerprint(**parts)  # type: ignore[arg-type]
    assert base == fingerprint(**parts)  # type: ignore[arg-type]
    for name in parts:
        changed = parts | {name: ("other",) if name == "programs" else "other"}
        assert fingerprint(**changed) != base  # type: ignore[arg-type]


def test_a_file_that_vanishes_while_the_directory_is_listed_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = ProbeCache(tmp_path)
    cache.store(_PRINT, _PROBED)
    cache.store("b" * 64, _PROBED)
    measured = cache_module._modified_ns

    def removed_first(entry: os.DirEntry[str]) -> int:
        (tmp_path / f"{'b' * 64}.json").unlink(missing_ok=True)
        return measured(entry)

    monkeypatch.setattr(cache_module, "_modified_ns", removed_first)
    assert cache.all() == (_PROBED,)


def test_a_pipe_in_the_place_of_a_result_is_ignored_and_replaced(tmp_path: Path) -> None:
    cache = ProbeCache(tmp_path)
    os.mkfifo(tmp_path / f"{_PRINT}.json")
    os.mkfifo(tmp_path / "programs.json")
    assert (cache.load(_PRINT), cache.all()) == (None, ())
    assert cache.load_digests().remembered == {}
    cache.store(_PRINT, _PROBED)
    assert cache.load(_PRINT) == _PROBED


def test_what_others_may_write_is_neither_read_nor_written(tmp_path: Path) -> None:
    directory = tmp_path / "results"
    cache = ProbeCache(directory)
    cache.store(_PRINT, _PROBED)
    result = directory / f"{_PRINT}.json"
    result.chmod(0o666)
    assert cache.load(_PRINT) is None
    result.chmod(0o600)
    directory.chmod(0o777)
    assert cache.load(_PRINT) is None
    cache.store("b" * 64, _PROBED)
    assert [path.name for path in directory.iterdir()] == [result.name]
    if os.geteuid() == 0:
        directory.chmod(0o700)
        os.chown(result, 1234, 1234)
        assert cache.load(_PRINT) is None


def test_only_regular_files_of_bounded_size_have_a_digest(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "huge").open("wb") as huge:
        huge.truncate(1 << 40)
    paths = [tmp_path / "pipe", tmp_path / "huge", Path("/dev/zero"), tmp_path]
    assert [Digests().of(path) for path in paths] == [""] * 4
