"""Finding handlers on a search path, with programs made for the purpose."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from moorage.handlers import Handler, Machine, discover, find_containerd, search_path
from moorage.linux.command import CommandError

MACHINE = Machine(kernel=(6, 1), has_kvm=False)
FEATURES = json.dumps(
    {
        "ociVersionMax": "1.2.0",
        "mountOptions": ["rro"],
        "linux": {"namespaces": ["user"], "mountExtensions": {"idmap": {"enabled": True}}},
    }
)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path


def program(directory: Path, name: str, script: str) -> None:
    path = directory / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def containerd(directory: Path, version: str) -> None:
    program(directory, "containerd", f"echo containerd github.com/x/containerd {version} abc")
    program(directory, "containerd-shim-runc-v2", "exit 0")


async def found(directory: Path, *, deadline_s: float = 3.0) -> dict[str, Handler]:
    path = str(directory)
    engine = await find_containerd(path)
    handlers = await discover(engine, MACHINE, path=path, deadline_s=deadline_s)
    return {handler.handler: handler for handler in handlers}


async def test_a_runtime_is_reached_by_all_its_names(directory: Path) -> None:
    containerd(directory, "1.7.0")
    program(directory, "runsc", "echo runsc version release-20250319.0")
    program(directory, "containerd-shim-runsc-v1", "exit 0")
    handlers = await found(directory)
    for name in ("runsc", "gvisor"):
        assert handlers[name].available
        assert handlers[name].version == "20250319.0"
        assert handlers[name].path == str(directory / "runsc")


async def test_features_count_only_under_an_engine_that_honours_them(directory: Path) -> None:
    program(
        directory,
        "runc",
        f"case $1 in features) echo '{FEATURES}';; *) echo runc version 1.2.0;; esac",
    )
    containerd(directory, "1.6.20")
    old = (await found(directory))["runc"]
    containerd(directory, "v2.1.0")
    new = (await found(directory))["runc"]
    both = ("recursiveReadOnlyMounts", "userNamespaces")
    assert (old.runtime_features, old.features) == (both, ())
    assert (new.runtime_features, new.features) == (both, both)


async def test_a_runtime_without_the_features_command_claims_nothing(directory: Path) -> None:
    containerd(directory, "v2.1.0")
    program(directory, "crun", "case $1 in features) exit 1;; *) echo crun version 1.15;; esac")
    crun = (await found(directory))["crun"]
    assert crun.available
    assert crun.runtime_features is None
    assert crun.features == ()


async def test_a_program_that_hangs_is_unavailable_and_holds_nobody_up(directory: Path) -> None:
    containerd(directory, "1.7.0")
    program(directory, "runc", "exec sleep 60")
    program(directory, "crun", "echo crun version 1.15")
    began = time.monotonic()
    handlers = await found(directory, deadline_s=0.3)
    assert time.monotonic() - began < 5
    assert handlers["runc"].reason == f"{directory}/runc does not answer: no answer within 0.3 s"
    assert handlers["crun"].available


async def test_a_program_that_fails_says_its_own_words(directory: Path) -> None:
    containerd(directory, "1.7.0")
    program(directory, "runc", "echo cannot find libseccomp >&2; exit 127")
    assert "cannot find libseccomp" in (await found(directory))["runc"].reason


async def test_what_is_not_installed_is_told_too(directory: Path) -> None:
    containerd(directory, "1.7.0")
    kata = (await found(directory))["kata-containers"]
    assert not kata.available
    assert kata.reason == "containerd-shim-kata-v2 is not on PATH"


async def test_without_an_engine_runtimes_are_judged_alone(directory: Path) -> None:
    program(directory, "runsc", "echo runsc version release-20250319.0")
    assert await find_containerd(str(directory)) is None
    assert (await found(directory))["gvisor"].available


async def test_a_containerd_that_tells_no_version_is_an_error(directory: Path) -> None:
    program(directory, "containerd", "echo hello")
    with pytest.raises(CommandError, match="no version in its answer: hello"):
        await find_containerd(str(directory))


async def test_shims_beside_containerd_are_found_off_the_path(directory: Path) -> None:
    containerd(directory, "1.7.0")
    elsewhere = directory / "bin"
    elsewhere.mkdir()
    (elsewhere / "containerd").symlink_to(directory / "containerd")
    engine = await find_containerd(f"{elsewhere}:{directory}")
    assert engine is not None
    assert engine.shims == {"containerd-shim-runc-v2": directory / "containerd-shim-runc-v2"}


def test_the_search_path_has_the_systems_directories_once() -> None:
    assert search_path({"PATH": "/opt/bin:/usr/bin"}) == (
        "/opt/bin:/usr/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/sbin:/bin"
    )
    assert search_path({}).startswith("/usr/local/sbin:")


async def test_a_program_that_others_can_write_is_not_run(tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    program(tmp_path, "runc", f"touch {asked}; echo runc version 1.2.0")
    found = tmp_path / "runc"
    found.chmod(0o777)
    handlers = await discover(None, MACHINE, path=str(tmp_path))
    (runc,) = [each for each in handlers if each.handler == "runc"]
    assert not runc.available
    assert "can be written by others (mode 0777)" in runc.reason
    assert runc.remedy == f"look at it, then chmod go-w {found}"
    assert not asked.exists()
