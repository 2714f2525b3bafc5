"""Files to migrate: which are read, how they are written, and what is left as it is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from moorage.api.errors import OperationError
from moorage.migrate.files import FileMigration, plan_files
from moorage.migrate.rules import Options, Severity

_OLD = "apiVersion: node.k8s.io/v1beta1\nkind: RuntimeClass\nmetadata: {name: a}\nhandler: a\n"
_NEW = _OLD.replace("v1beta1", "v1")
_POD = (
    "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  annotations:\n"
    '    io.kubernetes.cri.untrusted-workload: "true"\nspec:\n  containers: []\n'
)


def _plan(*paths: Path, out: Path | None = None) -> FileMigration:
    return plan_files(paths, out or paths[0].parent / "out", Options())


def test_a_directory_is_read_with_all_below_it_but_what_is_not_for_migration(
    tmp_path: Path,
) -> None:
    tree = tmp_path / "tree"
    for name in (
        "a.yaml", "deep/er/b.yml", ".git/c.yaml", "notes.txt", "chart/templates/d.yaml",
        "chart/templates/more/e.yaml", "chart/Chart.yaml",
    ):  # fmt: skip
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_OLD)
    (tree / "unrelated.yaml").write_text("this: [is broken, but nothing for us\n")
    (tree / "loop").symlink_to(tree)
    os.mkfifo(tree / "pipe.yaml")
    migration = _plan(tree)
    assert sorted(migration.plan.changed) == [
        str(tree / name) for name in ("a.yaml", "chart/Chart.yaml", "deep/er/b.yml")
    ]
    assert sorted(finding.place for finding in migration.findings) == [
        str(tree / "chart/templates/d.yaml"),
        str(tree / "chart/templates/more/e.yaml"),
    ]
    assert not migration.is_refused


def test_a_file_is_read_once_by_whatever_name(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(_OLD)
    (tmp_path / "b.yaml").symlink_to(file)
    assert list(_plan(file, tmp_path, tmp_path / "b.yaml").plan.changed) == [str(file)]


def test_writing_keeps_mode_link_and_line_ends(tmp_path: Path) -> None:
    file, link = tmp_path / "a.yaml", tmp_path / "link.yaml"
    file.write_bytes(_OLD.replace("\n", "\r\n").encode())
    file.chmod(0o640)
    link.symlink_to(file)
    if os.geteuid() == 0:
        os.chown(file, 1234, 1234)
    _plan(link).write()
    assert link.is_symlink()
    assert file.read_bytes() == _NEW.replace("\n", "\r\n").encode()
    assert file.stat().st_mode & 0o777 == 0o640
    if os.geteuid() == 0:
        assert (file.stat().st_uid, file.stat().st_gid) == (1234, 1234)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.yaml", "link.yaml"]


def test_the_second_migration_has_nothing_to_do(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(_OLD + "---\n" + _POD)
    first = _plan(tmp_path, out=tmp_path / "out")
    assert first.has_changes
    assert [path.name for path in first.write()] == ["runtimeclasses.yaml", "a.yaml"]
    second = _plan(tmp_path, out=tmp_path / "out")
    assert not second.has_changes
    assert list(second.diffs()) == []


@pytest.mark.parametrize("done", [0, 1, 2, 3])
def test_an_interrupted_migration_is_completed_by_the_next(tmp_path: Path, done: int) -> None:
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(_POD)
    whole = _plan(tmp_path, out=tmp_path / "out")
    outputs, changed = dict(whole.plan.outputs), dict(whole.plan.changed)
    # What a kill after so many files leaves.
    pending = [(tmp_path / "out" / name, text) for name, text in outputs.items()]
    pending += [(Path(name), text) for name, text in changed.items()]
    for path, text in pending[:done]:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    _plan(tmp_path, out=tmp_path / "out").write()
    assert {path: path.read_text() for path, _ in pending} == dict(pending)


def test_a_file_that_changed_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(_OLD)
    migration = _plan(file)
    file.write_text("edited: meanwhile\n")
    with pytest.raises(OperationError, match="changed meanwhile"):
        migration.write()
    assert file.read_text() == "edited: meanwhile\n"


def test_what_cannot_be_read_is_a_finding_and_the_rest_goes_on(tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text(_OLD)
    (tmp_path / "latin.yaml").write_bytes(_OLD.encode() + b"# caf\xe9\n")
    (tmp_path / "large.yaml").write_bytes(_OLD.encode() + b"#" * 9_000_000)
    (tmp_path / "broken.yaml").write_text(_OLD + "a: [\n")
    named = tmp_path / "fifo"
    os.mkfifo(named)
    migration = _plan(tmp_path, named, tmp_path / "missing.yaml")
    assert list(migration.plan.changed) == [str(tmp_path / "good.yaml")]
    findings = {Path(finding.place).name: str(finding.text) for finding in migration.findings}
    assert sorted(findings) == ["broken.yaml", "fifo", "large.yaml", "latin.yaml", "missing.yaml"]
    assert findings["fifo"] == "it is not a regular file"
    assert findings["latin.yaml"].startswith("it is not UTF-8 text at byte ")
    assert findings["large.yaml"] == "it has more than 8 MiB; split it"
    assert findings["missing.yaml"] == "No such file or directory"
    assert migration.is_refused


def test_a_new_file_is_shown_against_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(_POD)
    out = tmp_path / "out"
    first, second = _plan(tmp_path, out=out).diffs()
    assert first.startswith(f"--- /dev/null\n+++ {out}/runtimeclasses.yaml\n@@ -0,0 +1,5 @@\n")
    assert second.startswith(f"--- {tmp_path}/a.yaml\n+++ {tmp_path}/a.yaml\n")


def test_an_output_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "policies.yaml").write_bytes(b"\xff")
    with pytest.raises(OperationError, match=r"policies.yaml is not UTF-8"):
        _plan(tmp_path, out=tmp_path / "out")


def test_a_link_to_itself_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    (tmp_path / "good.yaml").write_text(_OLD)
    migration = _plan(tmp_path)
    assert list(migration.plan.changed) == [str(tmp_path / "good.yaml")]
    assert [Path(finding.place).name for finding in migration.findings] == ["loop.yaml"]


def test_links_in_a_directory_change_nothing_outside_of_it(tmp_path: Path) -> None:
    tree, outside = tmp_path / "tree", tmp_path / "outside.yaml"
    tree.mkdir()
    for path in (outside, tree / "inside.yaml"):
        path.write_text(_OLD)
    (tree / "out.yaml").symlink_to(outside)
    (tree / "in.yaml").symlink_to("inside.yaml")
    (tree / "unrelated.yaml").symlink_to("/etc/hostname")
    migration = _plan(tree)
    migration.write()
    assert (outside.read_text(), (tree / "inside.yaml").read_text()) == (_OLD, _NEW)
    (finding,) = migration.findings
    assert (finding.place, finding.severity) == (str(tree / "out.yaml"), Severity.SKIPPED)
    assert f"a link to {outside}" in str(finding)
    assert list(_plan(tree, tree / "out.yaml").plan.changed) == [str(tree / "out.yaml")]


@pytest.mark.parametrize("link", ["out", "out/handlers.d", "out/runtimeclasses.yaml"])
def test_links_in_the_output_directory_lead_nowhere_else(tmp_path: Path, link: str) -> None:
    (tmp_path / "a.yaml").write_text(_POD)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    place = tmp_path / link
    place.parent.mkdir(exist_ok=True)
    place.symlink_to(elsewhere if link != "out/runtimeclasses.yaml" else elsewhere / "x.yaml")
    with pytest.raises(OperationError, match="is a symbolic link"):
        _plan(tmp_path / "a.yaml", out=tmp_path / "out")
    assert list(elsewhere.iterdir()) == []


def test_a_pipe_in_the_output_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(_POD)
    (tmp_path / "out").mkdir()
    os.mkfifo(tmp_path / "out" / "classes.yaml")
    with pytest.raises(OperationError, match="is not a regular file"):
        _plan(tmp_path / "a.yaml", out=tmp_path / "out")


def test_standard_input_that_is_too_large_is_refused(tmp_path: Path) -> None:
    migration = plan_files([], tmp_path / "out", Options(), b"#" * 9_000_000)
    assert migration.is_refused
