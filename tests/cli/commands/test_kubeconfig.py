"""`moor kubeconfig`: where it is, and the user's own file."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from moorage.cluster.access.credentials import Credentials
from moorage.cluster.layout import Layout
from tests.cli.moor import Answer, cluster, moor


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = cluster(tmp_path, name="mine")
    credentials = Credentials(layout)
    for path in (
        credentials.authority.certificate, credentials.admin.certificate, credentials.admin.key
    ):  # fmt: skip
        path.parent.mkdir(exist_ok=True)
        path.write_text(path.name)
    return layout


def test_its_path_is_printed(layout: Layout) -> None:
    answer = moor("kubeconfig", "--data-dir", layout.root)
    assert answer == Answer(0, f"{layout.kubeconfig}\n", "")


def test_the_users_file_is_changed_when_asked_for(layout: Layout, tmp_path: Path) -> None:
    own = tmp_path / "config"
    command = ("kubeconfig", "--file", own, "--data-dir", layout.root)
    assert moor(*command).status == 0
    assert not own.exists()
    assert moor(*command, "--merge") == Answer(0, f"added context mine to {own}\n", "")
    assert yaml.safe_load(own.read_text())["current-context"] == "mine"
    assert moor(*command, "--unmerge") == Answer(0, f"removed mine from {own}\n", "")
    assert yaml.safe_load(own.read_text())["contexts"] == []


def test_invalid_kubeconfig_is_left_unchanged(layout: Layout, tmp_path: Path) -> None:
    own = tmp_path / "config"
    own.write_text("- thesis\n")
    for option in ("--merge", "--unmerge"):
        answer = moor("kubeconfig", option, "--file", own, "--data-dir", layout.root)
        assert (answer.status, answer.out) == (1, "")
        assert answer.err == f"moor: {own}: not a kubeconfig; it is left as it is\n"
    assert own.read_text() == "- thesis\n"


def test_invalid_options_are_rejected(layout: Layout, tmp_path: Path) -> None:
    both = moor("kubeconfig", "--merge", "--unmerge", "--data-dir", layout.root)
    assert both.status == 2
    assert "--merge and --unmerge exclude each other" in both.err
    assert moor("kubeconfig", "--data-dir", tmp_path / "none").status == 3
