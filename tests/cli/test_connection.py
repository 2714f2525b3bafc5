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


@click.command()
@connection_options
def command(target: Target) -> None:
    cluster = target.cluster
    click.echo(cluster.directory if cluster is not None else target.kubeconfigs)


def chosen(*arguments: str, **variables: str) -> str:
    environment = {"KUBECONFIG": None, "MOORAGE_DATA_DIR": None, **variables}
    runner = CliRunner(env=environment)
    return runner.invoke(command, arguments, catch_exceptions=False).output.strip()


def target(
    kubeconfig: Path | None, context: str | None, data_dir: Path, *, is_directory_given: bool,
    **variables: str,
) -> Target:  # fmt: skip
    return target_of(
        kubeconfig, context, data_dir, is_directory_given=is_directory_given, environment=variables
    )


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
    cluster = target(None, None, tmp_path, is_directory_given=False).cluster
    assert cluster is not None
    assert cluster.directory == tmp_path


def test_kubeconfig_of_the_environment_comes_before_the_default_directory(
    tmp_path: Path,
) -> None:
    names = f"{tmp_path}/a:{tmp_path}/b:"
    assert target(None, None, tmp_path, is_directory_given=False, KUBECONFIG=names) == Target(
        (tmp_path / "a", tmp_path / "b")
    )


@pytest.mark.parametrize("is_option", [True, False])
def test_a_directory_that_is_given_comes_before_kubeconfig_of_the_environment(
    tmp_path: Path, *, is_option: bool
) -> None:
    options = ["--data-dir", str(tmp_path)] if is_option else []
    variables = {} if is_option else {"MOORAGE_DATA_DIR": str(tmp_path)}
    assert chosen(*options, KUBECONFIG=f"{tmp_path}/a", **variables) == str(tmp_path)


def test_the_option_comes_before_all(tmp_path: Path) -> None:
    other = written(tmp_path / "other")
    variables = {"KUBECONFIG": f"{tmp_path}/a", "MOORAGE_DATA_DIR": str(tmp_path)}
    assert str(other) in chosen("--kubeconfig", str(other), **variables)


def test_a_context_alone_is_one_of_the_users_kubeconfig(tmp_path: Path) -> None:
    users = Path.home() / ".kube" / "config"
    assert target(None, "c", tmp_path, is_directory_given=False) == Target((users,), "c")
    own = target(None, "c", tmp_path, is_directory_given=True, KUBECONFIG=f"{tmp_path}/a")
    assert own == Target((tmp_path / "a",), "c")


def test_a_context_and_a_directory_exclude_each_other(tmp_path: Path) -> None:
    assert "leave out --data-dir" in chosen("--context", "c", "--data-dir", str(tmp_path))


def test_the_kubeconfig_of_our_cluster_chooses_that_cluster(
    tmp_path: Path,
) -> None:
    """So what only its machine knows is known, as with --data-dir."""
    own = our_cluster(tmp_path / "ours")
    assert chosen(KUBECONFIG=str(own)) == str(own.parent)
    assert chosen("--kubeconfig", str(own)) == str(own.parent)
    with_context = target(own, "c", tmp_path, is_directory_given=False)
    assert with_context.cluster is None


def test_a_cluster_that_does_not_run_is_an_error_that_names_the_choices(tmp_path: Path) -> None:
    down = target(None, None, tmp_path, is_directory_given=True)
    with pytest.raises(NotRunningError) as caught:
        down.config()
    sentence = sentence_of(caught.value)
    for choice in ("moor up", "--kubeconfig", "KUBECONFIG", "--data-dir", "MOORAGE_DATA_DIR"):
        assert choice in sentence
