"""What several commands check alike: directories, endpoints, KEY=VALUE."""

from __future__ import annotations

import os
from pathlib import Path

import click
import pytest

from moorage.cli import options
from moorage.cli.errors import CliError, NotRunningError
from moorage.cli.options import (
    layout_of,
    new_layout_of,
    pairs,
    present_settings,
    running_settings,
    socket_path,
)
from moorage.cluster.layout import Layout
from tests.cli.moor import cluster, held


def test_pairs_are_split_at_the_first_equals_sign() -> None:
    assert pairs("--x", ("a=b", "c=d=e", "a=f")) == {"a": "f", "c": "d=e"}


@pytest.mark.parametrize("text", ["a", "=b", "a=", ""])
def test_a_pair_without_key_or_value_is_wrong(text: str) -> None:
    with pytest.raises(click.UsageError, match=rf"--x takes KEY=VALUE, not '{text}'"):
        pairs("--x", (text,))


@pytest.mark.parametrize("path", ["/a.sock", f"/{'x' * 106}"])
def test_a_sockets_path(path: str) -> None:
    assert socket_path("--x", f"unix://{path}") == Path(path)


@pytest.mark.parametrize(
    ("endpoint", "said"),
    [
        ("/a.sock", "of the form unix"),
        ("tcp:///a.sock", "of the form unix"),
        ("unix://a.sock", "of the form unix"),
        (f"unix:///{'x' * 107}", "at most 107 bytes"),
        (f"unix:///{'é' * 54}", "at most 107 bytes"),
    ],
)
def test_an_endpoint_that_cannot_be(endpoint: str, said: str) -> None:
    with pytest.raises(click.UsageError, match=said):
        socket_path("--x", endpoint)


def test_the_directory_without_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert options._default_data_dir() == Path("/var/lib/moorage")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("HOME", "/home/a")
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    assert options._default_data_dir() == Path("/home/a/.local/share/moorage")
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert options._default_data_dir() == Path("/data/moorage")


def test_links_to_the_directory_are_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert layout_of(tmp_path / "link").root == tmp_path / "real"
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(CliError, match="its links lead in a circle"):
        layout_of(tmp_path / "loop")


@pytest.mark.parametrize(
    "names",
    [
        (), ("cluster.json", "thesis.tex"), ("db", "x"), ("pki",), ("store.mark",),
        ("supervisor.json",), ("lost+found",), ("change.lock", "engine", "images", "logs"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_directory_that_is_a_clusters_or_may_become_one(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    for name in names:
        (tmp_path / name).touch()
    assert new_layout_of(tmp_path).root == tmp_path
    assert new_layout_of(tmp_path / "a" / "b").root == tmp_path / "a" / "b"


def test_a_directory_with_other_things_is_named_with_the_first_of_them(tmp_path: Path) -> None:
    for name in ("logs", "thesis.tex", "zebra"):
        (tmp_path / name).touch()
    with pytest.raises(
        CliError,
        match=rf"^--data-dir {tmp_path}: it is no cluster's directory and is not empty "
        r"\(thesis\.tex\); choose another directory$",
    ):
        new_layout_of(tmp_path)


def test_a_path_that_no_cluster_can_be_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CliError, match=f"{tmp_path}/file is not a directory"):
        new_layout_of(tmp_path / "file" / "below" / "it")
    (tmp_path / "d").mkdir()
    denied: list[int] = []
    monkeypatch.setattr(os, "access", lambda _path, mode: (denied.append(mode), False)[1])
    with pytest.raises(CliError, match=r"/d: it is not writable for this user"):
        new_layout_of(tmp_path / "d")
    with pytest.raises(CliError, match=f"{tmp_path}/d is not writable for this user"):
        new_layout_of(tmp_path / "d" / "x" / "y")
    assert denied == [os.W_OK | os.X_OK] * 2


def test_how_long_a_directorys_path_may_be(tmp_path: Path) -> None:
    rest = 1024 - len(bytes(tmp_path))
    longest = tmp_path / ("/".join(["y" * 99] * 11)[: rest - 1].rstrip("/").ljust(rest - 1, "z"))
    assert len(bytes(longest)) == 1024
    assert new_layout_of(longest).root == longest
    with pytest.raises(CliError, match="the path is longer than 1024 bytes"):
        new_layout_of(Path(f"{longest}z"))


def test_the_settings_of_a_cluster_that_is_there_and_of_one_that_runs(tmp_path: Path) -> None:
    with pytest.raises(NotRunningError, match="there is no cluster in"):
        present_settings(Layout(tmp_path))
    layout = cluster(tmp_path, name="x")
    assert present_settings(layout).name == "x"
    with pytest.raises(NotRunningError, match="is not running"):
        running_settings(layout)
    with held(layout):
        assert running_settings(layout).name == "x"
