"""`moor migrate` on files: what it prints, and its exit status."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from tests.cli.moor import moor

_OLD = "apiVersion: node.k8s.io/v1beta1\nkind: RuntimeClass\nmetadata: {name: a}\nhandler: a.b\n"
_NEW = _OLD.replace("v1beta1", "v1").replace("a.b", "a-b")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "a.yaml"
    path.write_text(_OLD)
    return path


def test_differences_are_shown_and_nothing_is_written(file: Path) -> None:
    answer = moor("migrate", "a.yaml")
    assert answer.status == 1
    assert "-apiVersion: node.k8s.io/v1beta1\n+apiVersion: node.k8s.io/v1\n" in answer.out
    assert "+++ migrated/renames.toml\n" in answer.out
    assert answer.err == ""
    assert file.read_text() == _OLD
    assert not Path("migrated").exists()


def test_writing_twice_does_nothing_the_second_time(file: Path) -> None:
    first = moor("migrate", "a.yaml", "--write")
    assert (first.status, first.out) == (0, "wrote migrated/renames.toml\nwrote a.yaml\n")
    assert file.read_text() == _NEW
    for options in ([], ["--write"]):
        assert moor("migrate", "a.yaml", *options).out == ""
        assert moor("migrate", "a.yaml", *options).status == 0


def test_what_is_refused_is_named_and_fails(file: Path) -> None:
    file.write_text(_OLD.replace("a.b", "'...'"))
    answer = moor("migrate", ".")
    assert answer.status == 2
    assert answer.out == ""
    assert answer.err.startswith(
        "moor migrate: a.yaml (RuntimeClass/a): refused: the handler '...'"
    )


def test_standard_input_is_printed_changed(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for options, status in (([], 1), (["--write"], 0)):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(file.read_bytes())))
        answer = moor("migrate", "-", "--rename", "a.b=c", *options)
        assert answer.status == status
        if status:
            assert "+handler: c\n" in answer.out
        else:
            assert answer.out == _NEW.replace("a-b", "c")
            assert answer.err == "wrote migrated/renames.toml\n"


def test_a_control_character_in_a_name_does_not_reach_the_terminal(file: Path) -> None:
    Path("a\x1b[31m.yaml").write_text("kind: RuntimeClass\na: [\n")
    file.unlink()
    answer = moor("migrate", ".")
    assert "\x1b" not in answer.err
    assert r"a\x1b[31m.yaml: refused: " in answer.err


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "name files or directories"),
        (["--live", "a.yaml"], "--live takes no PATH"),
        (["a.yaml", "--context", "x"], "go with --live"),
        (["none.yaml"], "does not exist"),
        (["a.yaml", "--rename", "a.b"], "--rename takes KEY=VALUE"),
        (["a.yaml", "--rename", "a.b=C"], "--rename a.b=C: a lowercase RFC 1123 label"),
        (["a.yaml", "--rename", "a=b", "--rename", "b=c"], "'b' is renamed too"),
        (["a.yaml", "--class", "x=y"], "'x' is none of untrusted, os-container, unikernel, hyperv"),
        (["a.yaml", "--class", "untrusted=A"], "--class untrusted=A: a lowercase"),
        (["a.yaml", "--default-handler", "a.b"], "--default-handler a.b: "),
        (["--live", "--kubeconfig", "none"], "does not exist"),
    ],
)
def test_wrong_usage_has_status_2(file: Path, arguments: list[str], reason: str) -> None:
    answer = moor("migrate", *arguments)
    assert answer.status == 2
    assert reason in answer.err
    assert file.read_text() == _OLD


def test_colour_goes_to_a_terminal_alone(file: Path) -> None:
    del file
    assert "\x1b[32m+handler: a-b" in moor("migrate", "a.yaml", terminal=True).out


def test_the_result_is_there_for_programs(file: Path) -> None:
    answer = moor("migrate", file.name, "-o", "json")
    document = json.loads(answer.out)
    assert answer.status == 1
    assert document["has_changes"]
    assert document["diffs"][0].startswith("---")
    written = json.loads(moor("migrate", file.name, "--write", "-o", "json").out)["written"]
    assert file.name in written
