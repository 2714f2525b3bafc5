"""Connections: which cluster the options, KUBECONFIG and the default directory choose."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from moorage.cli.connection import Target, connection_options, target_of
from moorage.cli.errors import sentence_of
from moorage.cluster.errors import NotRunningError
from moorage.cluster.layout import Layout
from moorage.cluster.settings import save
from tests.cluster.test_settings import SETTINGS


@pytest.fixture(autouse=True)
def _no_kubeconfig(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("MOORAGE_DATA_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@click.command()
@connection_options
def command(target: Target) -> None:
    cluster = target.cluster
    click.echo(cluster.directory if cluster is not None else target.kubeconfigs)


def chosen(*arguments: str) -> str:
    done = CliRunner().invoke(command, arguments, catch_exceptions=False)
    return done.output.strip()


def written(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}")
    return path


def our_cluster(directory: Path) -> Path:
    """Return the kubeconfig of a cluster in a directory that has settings."""
    layout = Layout(directory)
    directory.mkdir()
    save(layout.settings, SETTINGS)
    return written(layout.kubeconfig)


def test_the_cluster_in_the_directory_is_meant_by_default(tmp_path: Path) -> None:
    target = target_of(None, None, tmp_path, is_directory_given=False)
    assert target.cluster is not None
    assert target.cluster.directory == tmp_path


def test_kubeconfig_of_the_environment_comes_before_the_default_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/a:{tmp_path}/b:")
    assert target_of(None, None, tmp_path, is_directory_given=False) == Target(
        (tmp_path / "a", tmp_path / "b")
    )


@pytest.mark.parametrize("is_option", [True, False])
def test_a_directory_that_is_given_comes_before_kubeconfig_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, is_option: bool
) -> None:
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/a")
    if not is_option:
        monkeypatch.setenv("MOORAGE_DATA_DIR", str(tmp_path))
    assert chosen(*(["--data-dir", str(tmp_path)] if is_option else [])) == str(tmp_path)


def test_the_option_comes_before_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/a")
    monkeypatch.setenv("MOORAGE_DATA_DIR", str(tmp_path))
    other = written(tmp_path / "other")
    assert str(other) in chosen("--kubeconfig", str(other))


def test_a_context_alone_is_one_of_the_users_kubeconfig(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert target_of(None, "c", tmp_path, is_directory_given=False) == Target(
        (tmp_path / "home" / ".kube" / "config",), "c"
    )
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/a")
    assert target_of(None, "c", tmp_path, is_directory_given=True) == Target((tmp_path / "a",), "c")


def test_a_context_and_a_directory_exclude_each_other(tmp_path: Path) -> None:
    assert "leave out --data-dir" in chosen("--context", "c", "--data-dir", str(tmp_path))


def test_the_kubeconfig_of_our_cluster_chooses_that_cluster(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """So what only its machine knows is known, as with --data-dir."""
    own = our_cluster(tmp_path / "ours")
    monkeypatch.setenv("KUBECONFIG", str(own))
    assert chosen() == str(own.parent)
    assert chosen("--kubeconfig", str(own)) == str(own.parent)
    with_context = target_of(own, "c", tmp_path, is_directory_given=False)
    assert with_context.cluster is None


def test_a_cluster_that_does_not_run_is_an_error_that_names_the_choices(tmp_path: Path) -> None:
    target = target_of(None, None, tmp_path, is_directory_given=True)
    with pytest.raises(NotRunningError) as caught:
        target.config()
    sentence = sentence_of(caught.value)
    for choice in ("moor up", "--kubeconfig", "KUBECONFIG", "--data-dir", "MOORAGE_DATA_DIR"):
        assert choice in sentence
