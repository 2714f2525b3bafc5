"""`moor check`: where facts come from, and its exit status."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.cli.moor import moor

_CLASS = "{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: a}, handler: a}\n"
_POD = """\
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  runtimeClassName: a
  hostNetwork: true
  containers: []
"""
_PROFILE = """\
apiVersion: runtime.moorage.dev/v1alpha1
kind: RuntimeProfile
metadata: {name: n.a}
spec: {nodeName: n, handler: a}
status:
  conditions: [{type: Working, status: "True"}]
  features: [{name: host-network, state: Unsupported}]
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "pod.yaml").write_text(_POD)
    (tmp_path / "facts.yaml").write_text(f"{_CLASS}---\n{_PROFILE}")
    (tmp_path / "empty.yaml").write_text("# nothing\n")
    return tmp_path


def test_a_warning_fails_only_a_strict_check(files: Path) -> None:
    arguments = ("check", files / "pod.yaml", "--facts", files / "facts.yaml")
    answer = moor(*arguments)
    assert answer.status == 0
    assert answer.out.startswith(
        f"{files}/pod.yaml:6: warning: Pod default/p: spec.hostNetwork: class a lacks host-network"
    )
    assert moor(*arguments, "--strict").status == 1


def test_what_would_be_refused_fails_the_check(files: Path) -> None:
    answer = moor("check", files / "pod.yaml", "--facts", files / "empty.yaml", "-o", "json")
    assert answer.status == 1
    (result,) = json.loads(answer.out)["results"]
    assert (result["rule"], result["line"]) == ("class-missing", 5)


def test_directories_are_read_and_their_classes_are_known(files: Path) -> None:
    answer = moor("check", files, "--facts", files / "empty.yaml", "-n", "team", "-o", "sarif")
    assert answer.status == 0
    (run,) = json.loads(answer.out)["runs"]
    assert [result["ruleId"] for result in run["results"]] == ["feature"]
    uri = run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri == f"file://{files}/pod.yaml"


def test_files_that_cannot_be_read_are_results(files: Path) -> None:
    (files / "bad.yaml").write_text("a: [")
    (files / "latin.yaml").write_bytes(b"a: \xff")
    names = [files / name for name in ("bad.yaml", "latin.yaml", "gone.yaml", "empty.yaml")]
    answer = moor("check", *names, "--facts", files / "facts.yaml", "-o", "json")
    assert answer.status == 1
    results = json.loads(answer.out)["results"]
    assert [Path(result["file"]).name for result in results] == [
        "bad.yaml", "latin.yaml", "gone.yaml",
    ]  # fmt: skip
    assert {result["rule"] for result in results} == {"unreadable"}


def test_facts_that_mean_nothing_are_named(files: Path) -> None:
    (files / "bad.yaml").write_text("kind: RuntimeClass\nmetadata: {name: a}\nhandler: 7\n")
    answer = moor("check", files / "pod.yaml", "--facts", files / "bad.yaml")
    assert answer.status == 1
    assert f"{files}/bad.yaml:1: RuntimeClass a: " in answer.err


def test_without_facts_a_cluster_must_run(files: Path) -> None:
    answer = moor("check", files / "pod.yaml", "--data-dir", files / "none")
    assert answer.status == 3
    two = ("--facts", files / "facts.yaml", "--context", "c")
    assert moor("check", files / "pod.yaml", *two).status == 2
    assert moor("check").status == 2


_POLICY = """\
apiVersion: runtime.moorage.dev/v1alpha1
kind: ClusterRuntimePolicy
metadata: {name: floor}
spec:
  minimumIsolation: very-strong
  allowed: [a]
"""


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("", "", {(5, "spec.minimumIsolation"), (6, "spec.allowed")}),
        ("minimumIsolation: very-strong\n  allowed: [a]", "checks: {a: Sometimes}",
         {(5, "spec.checks.a")}),
        ("minimumIsolation: very-strong\n  allowed: [a]", "enforceDefault: true", {(4, "spec")}),
        ("minimumIsolation: very-strong\n  allowed: [a]", "needs: much", {(5, "spec.needs")}),
        ("ClusterRuntimePolicy", "ClusterPolicy", {(2, "kind")}),
        ("v1alpha1", "v1", {(2, "kind")}),
    ],
)  # fmt: skip
def test_objects_of_our_own_group_are_checked_by_their_definitions(
    tmp_path: Path, old: str, new: str, expected: set[tuple[int, str]]
) -> None:
    (tmp_path / "policy.yaml").write_text(_POLICY.replace(old, new) if old else _POLICY)
    (tmp_path / "facts.yaml").write_text(_CLASS)
    answer = moor(
        "check", tmp_path / "policy.yaml", "--facts", tmp_path / "facts.yaml", "-o", "json"
    )
    assert answer.status == 1
    results = json.loads(answer.out)["results"]
    assert {(result["line"], result["field"]) for result in results} == expected
    assert {result["rule"] for result in results} == {"invalid"}


def test_a_good_policy_is_no_error_and_counts(files: Path) -> None:
    policy = _POLICY.replace("very-strong", "virtual-machine").replace("  allowed: [a]\n", "")
    (files / "policy.yaml").write_text(policy)
    answer = moor(
        "check", files / "policy.yaml", files / "pod.yaml", "--facts", files / "facts.yaml",
        "-o", "json",
    )  # fmt: skip
    assert [one["rule"] for one in json.loads(answer.out)["results"]] == ["floor", "feature"]


def test_what_is_no_regular_file_is_an_error_where_it_is_named_and_left_out_elsewhere(
    files: Path,
) -> None:
    os.mkfifo(files / "pipe.yaml")
    (files / "directory.yaml").mkdir()
    (files / "loop.yaml").symlink_to("loop.yaml")
    answer = moor("check", files / "pipe.yaml", "--facts", files / "facts.yaml")
    assert answer.status == 1
    assert "pipe.yaml:1: error: it is not a regular file" in answer.out
    answer = moor("check", files, "--facts", files / "facts.yaml", "-o", "json")
    results = json.loads(answer.out)["results"]
    assert [(result["file"], result["rule"]) for result in results] == [
        (f"{files}/loop.yaml", "unreadable"), (f"{files}/pod.yaml", "feature"),
    ]  # fmt: skip


def test_a_pipe_of_the_shell_is_read(files: Path) -> None:
    reader, writer = os.pipe()
    os.write(writer, _POD.encode())
    os.close(writer)
    try:
        answer = moor("check", f"/dev/fd/{reader}", "--facts", files / "facts.yaml")
    finally:
        os.close(reader)
    assert (answer.status, ":6: warning: Pod default/p" in answer.out) == (0, True)


def test_control_characters_of_a_file_do_not_reach_the_terminal(files: Path) -> None:
    pod = _POD.replace("name: p", 'name: "p\\e[2J\\u202e"').replace(": a\n", ': "a\\e[8m"\n')
    (files / "pod.yaml").write_text(pod)
    answer = moor("check", files / "pod.yaml", "--facts", files / "facts.yaml")
    assert answer.out.isascii()
    assert "\x1b" not in answer.out
    assert r"p\x1b[2J\u202e" in answer.out
    assert r"a\x1b[8m" in answer.out


def test_a_missing_class_is_answered_with_a_few_of_many(files: Path) -> None:
    classes = "---\n".join(
        _CLASS.replace("{name: a}", f"{{name: c{one:04}}}") for one in range(300)
    )
    (files / "facts.yaml").write_text(classes)
    (files / "pod.yaml").write_text(_POD.replace("Name: a", "Name: c0123x"))
    answer = moor("check", files / "pod.yaml", "--facts", files / "facts.yaml", "-o", "json")
    (result,) = json.loads(answer.out)["results"]
    assert result["message"].startswith(
        'RuntimeClass "c0123x" does not exist; those that do: c0123'
    )
    assert result["message"].endswith(" and 290 more")
    assert len(result["message"]) < 250
