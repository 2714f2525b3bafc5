"""A cluster is created only in a directory that has nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from moorage.cluster.layout import check_directory
from moorage.cluster.settings import SettingsError


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
    check_directory(tmp_path)
    check_directory(tmp_path / "a" / "b")


def test_foreign_directory_is_rejected_with_its_first_file(tmp_path: Path) -> None:
    for name in ("logs", "thesis.tex", "zebra"):
        (tmp_path / name).touch()
    with pytest.raises(
        SettingsError,
        match=rf"^--data-dir {tmp_path}: it is not a cluster's directory and is not empty "
        r"\(thesis\.tex\); choose another directory$",
    ):
        check_directory(tmp_path)


def test_a_path_that_no_cluster_can_be_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match=f"{tmp_path}/file is not a directory"):
        check_directory(tmp_path / "file" / "below" / "it")
    (tmp_path / "d").mkdir()
    denied: list[int] = []
    monkeypatch.setattr(os, "access", lambda _path, mode: (denied.append(mode), False)[1])
    with pytest.raises(SettingsError, match=r"/d: it is not writable for this user"):
        check_directory(tmp_path / "d")
    with pytest.raises(SettingsError, match=f"{tmp_path}/d is not writable for this user"):
        check_directory(tmp_path / "d" / "x" / "y")
    assert denied == [os.W_OK | os.X_OK] * 2


def test_how_long_a_directorys_path_may_be(tmp_path: Path) -> None:
    rest = 1024 - len(bytes(tmp_path))
    longest = tmp_path / ("/".join(["y" * 99] * 11)[: rest - 1].rstrip("/").ljust(rest - 1, "z"))
    assert len(bytes(longest)) == 1024
    check_directory(longest)
    with pytest.raises(SettingsError, match="the path is longer than 1024 bytes"):
        check_directory(Path(f"{longest}z"))


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a directory to another user: needs root")
def test_a_directory_of_another_user_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").touch()
    os.chown(tmp_path, 1000, 1000)
    with pytest.raises(SettingsError, match="it belongs to uid 1000, who could change what runs"):
        check_directory(tmp_path)
    os.chown(tmp_path, 0, 0)
    check_directory(tmp_path)
