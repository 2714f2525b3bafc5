"""An engine's files are those that its process was started with."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from moorage.runtimes.installing import RuntimeInstallationError
from moorage.runtimes.installing.other_engine import read_configuration
from moorage.runtimes.installing.running_processes import (
    CONTAINERD,
    EngineOption,
    find_process,
    path_of,
    unit_of,
)

OPTION = EngineOption(("--config", "-c"), "CONTAINER_CONFIG", Path("/etc/crio/crio.conf"))


@pytest.mark.parametrize(
    ("words", "variables", "path"),
    [
        ([], {}, "/etc/crio/crio.conf"),
        (["--config", "/a"], {}, "/a"),
        (["--config=/a"], {"CONTAINER_CONFIG": "/b"}, "/a"),
        (["-l", "debug", "-c", "a.toml"], {}, "a.toml"),
        (["--config-dir", "/x"], {"CONTAINER_CONFIG": "/b"}, "/b"),
        (["--config"], {}, "/etc/crio/crio.conf"),
        ([], {"CONTAINER_CONFIG": ""}, "/etc/crio/crio.conf"),
    ],
)
def test_the_command_line_counts_before_the_environment(
    words: list[str], variables: dict[str, str], path: str
) -> None:
    assert path_of(words, variables, OPTION) == Path(path)


@pytest.mark.parametrize(
    ("cgroups", "unit"),
    [
        ("0::/system.slice/containerd.service\n", "containerd.service"),
        (
            "2:cpu:/\n1:name=systemd:/system.slice/crio.service\n0::/system.slice/crio.service\n",
            "crio.service",
        ),
        ("0::/user.slice/user-0.slice/session-1.scope\n", ""),
        ("0::/system.slice/docker.service/containers/abc\n", ""),
        ("0::/\n", ""),
    ],
)
def test_a_systemd_service_is_known_by_its_cgroup(cgroups: str, unit: str) -> None:
    assert unit_of(cgroups) == unit


def test_an_engine_of_an_unknown_name_or_without_process_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RuntimeInstallationError, match="the engine podman is not known here"):
        find_process(f"unix://{tmp_path}/no.sock", "podman")
    with pytest.raises(RuntimeInstallationError, match="the process of containerd at"):
        find_process(f"unix://{tmp_path}/no.sock", CONTAINERD)


def test_the_process_is_the_one_that_listens(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        found = find_process(f"unix://{tmp_path}/s", CONTAINERD)
    assert found.identity.pid == os.getpid()


def test_imports_are_followed_as_the_engine_follows_them(tmp_path: Path) -> None:
    main = tmp_path / "config.toml"
    main.write_text('version = 3\nimports = ["d/*.toml", "config.toml", "other.toml"]\n')
    (tmp_path / "other.toml").write_text('version = 3\nimports = ["deep.toml"]\n')
    (tmp_path / "deep.toml").write_text("version = 3\n")
    (tmp_path / "d").mkdir()
    for name in ("b.toml", "a.toml", "c.conf"):
        (tmp_path / "d" / name).write_text("version = 3\n")
    read = read_configuration(CONTAINERD, "2.4.2", {"main": main}, frozenset())
    names = [file.path.name for file in read.files]  # type: ignore[attr-defined]
    assert names == ["config.toml", "a.toml", "b.toml", "other.toml", "deep.toml"]
    (tmp_path / "deep.toml").unlink()
    with pytest.raises(RuntimeInstallationError, match=r"deep\.toml cannot be changed: No such"):
        read_configuration(CONTAINERD, "2.4.2", {"main": main}, frozenset())
    absent = read_configuration(CONTAINERD, "2.4.2", {"main": tmp_path / "no"}, frozenset())
    assert absent.files == ()  # type: ignore[attr-defined]
