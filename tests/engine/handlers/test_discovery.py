"""Finding handlers on a search path, with programs made for the purpose."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from moorage.engine.handlers import Handler, Machine, discover, search_path

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


async def found(directory: Path, *, deadline_s: float = 3.0) -> dict[str, Handler]:
    handlers = await discover(MACHINE, path=str(directory), deadline_s=deadline_s)
    return {handler.handler: handler for handler in handlers}


async def test_a_runtime_is_reached_by_all_its_names(directory: Path) -> None:
    program(directory, "runsc", "echo runsc version release-20250319.0")
    handlers = await found(directory)
    for name in ("runsc", "gvisor"):
        assert handlers[name].available
        assert handlers[name].version == "20250319.0"
        assert handlers[name].path == str(directory / "runsc")


async def test_features_are_those_that_the_runtime_reports(directory: Path) -> None:
    program(
        directory,
        "runc",
        f"case $1 in features) echo '{FEATURES}';; *) echo runc version 1.2.0;; esac",
    )
    runc = (await found(directory))["runc"]
    both = ("recursiveReadOnlyMounts", "userNamespaces")
    assert (runc.runtime_features, runc.features) == (both, both)


async def test_a_runtime_without_the_features_command_claims_nothing(directory: Path) -> None:
    program(directory, "crun", "case $1 in features) exit 1;; *) echo crun version 1.15;; esac")
    crun = (await found(directory))["crun"]
    assert crun.available
    assert crun.runtime_features is None
    assert crun.features == ()


async def test_hanging_program_is_unavailable_and_delays_no_other(directory: Path) -> None:
    program(directory, "runc", "exec sleep 60")
    program(directory, "crun", "echo crun version 1.15")
    handlers = await found(directory, deadline_s=0.3)
    assert handlers["runc"].reason == f"{directory}/runc does not answer: no answer within 0.3 s"
    assert handlers["crun"].available


async def test_failing_program_is_reported_with_its_message(directory: Path) -> None:
    program(directory, "runc", "echo cannot find libseccomp >&2; exit 127")
    assert "cannot find libseccomp" in (await found(directory))["runc"].reason


async def test_missing_program_is_reported(directory: Path) -> None:
    kata = (await found(directory))["kata-containers"]
    assert not kata.available
    assert kata.reason == "containerd-shim-kata-v2 is not on PATH"


def test_the_search_path_has_the_systems_directories_once() -> None:
    assert search_path({"PATH": "/opt/bin:/usr/bin"}) == (
        "/opt/bin:/usr/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/sbin:/bin:/opt/kata/bin"
    )
    assert search_path({}).startswith("/usr/local/sbin:")


async def test_a_program_that_others_can_write_is_not_run(tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    program(tmp_path, "runc", f"touch {asked}; echo runc version 1.2.0")
    result = tmp_path / "runc"
    result.chmod(0o777)
    handlers = await discover(MACHINE, path=str(tmp_path))
    (runc,) = [handler for handler in handlers if handler.handler == "runc"]
    assert not runc.available
    assert "can be written by others (mode 0777)" in runc.reason
    assert runc.remedy == f"inspect it, then chmod go-w {result}"
    assert not asked.exists()
