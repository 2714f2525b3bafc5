"""Finding a containerd, with programs made for the purpose, and judging handlers under it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from moorage.engine.handlers import KNOWN_RUNTIMES, Handler
from moorage.linux.command import CommandError
from moorage.linux.program import Version
from tests.containerd_configuration.discovery import (
    Containerd,
    find_containerd,
    shim_program,
    under_containerd,
)
from tests.engine.handlers.programs import program as write_program

SHIM = "containerd-shim-runc-v2"
OLD = Containerd(Version((1, 6, 20), "1.6.20"), {SHIM: Path("/usr/bin") / SHIM})
NEW = replace(OLD, version=Version((2, 1, 0), "2.1.0"))
BOTH = ("recursiveReadOnlyMounts", "userNamespaces")


def handler(runtime: str, version: str = "9.9.9", name: str = "") -> Handler:
    return Handler(
        handler=name or runtime, runtime=runtime, version=version, available=True, features=BOTH
    )


def containerd(directory: Path, version: str) -> None:
    write_program(directory, "containerd", f"echo containerd github.com/x/containerd {version} abc")
    write_program(directory, SHIM, "exit 0")


@pytest.mark.parametrize(
    ("one", "engine"),
    [
        (handler("runc"), NEW),
        (handler("crun", "1.14.2"), NEW),
        (handler("kata"), NEW),
        (handler("runsc"), replace(NEW, shims={"containerd-shim-runsc-v1": Path("/usr/bin/x")})),
        (Handler(handler="youki", runtime="youki", reason="not on PATH"), NEW),
    ],
    ids=lambda value: value.runtime if isinstance(value, Handler) else "",
)
def test_what_containerd_can_run_is_unchanged(one: Handler, engine: Containerd) -> None:
    assert under_containerd([one], engine) == (one,)


def test_an_old_containerd_honours_no_features() -> None:
    (crun,) = under_containerd([handler("crun", "1.8.1")], OLD)
    assert (crun.available, crun.features) == (True, ())


@pytest.mark.parametrize(
    ("one", "engine", "reason"),
    [
        (
            handler("runsc", name="gvisor"),
            NEW,
            "containerd needs the shim containerd-shim-runsc-v1, which is not on PATH",
        ),
        (
            handler("crun", "1.8.1"),
            NEW,
            "crun 1.8.1 refuses the OCI version that containerd 2.1.0 writes",
        ),
    ],
    ids=["no shim", "too old"],
)
def test_what_containerd_cannot_run_is_unavailable(
    one: Handler, engine: Containerd, reason: str
) -> None:
    expected = msgspec.structs.replace(one, available=False, features=(), reason=reason)
    assert under_containerd([one], engine) == (expected,)


async def test_the_version_and_the_shims_are_found(tmp_path: Path) -> None:
    assert await find_containerd(str(tmp_path)) is None
    containerd(tmp_path, "v2.1.0")
    assert await find_containerd(str(tmp_path)) == Containerd(
        Version((2, 1, 0), "2.1.0"), {SHIM: tmp_path / SHIM}
    )


async def test_a_containerd_without_a_version_is_an_error(tmp_path: Path) -> None:
    write_program(tmp_path, "containerd", "echo hello")
    with pytest.raises(CommandError, match="no version in its answer: hello"):
        await find_containerd(str(tmp_path))


async def test_shims_beside_containerd_are_found_off_the_path(tmp_path: Path) -> None:
    containerd(tmp_path, "1.7.0")
    elsewhere = tmp_path / "bin"
    elsewhere.mkdir()
    (elsewhere / "containerd").symlink_to(tmp_path / "containerd")
    engine = await find_containerd(f"{elsewhere}:{tmp_path}")
    assert engine is not None
    assert engine.shims == {SHIM: tmp_path / SHIM}


@pytest.mark.parametrize(
    ("shim_type", "program"),
    [
        ("io.containerd.runc.v2", "containerd-shim-runc-v2"),
        ("io.containerd.runsc.v1", "containerd-shim-runsc-v1"),
        ("io.containerd.kata.v2", "containerd-shim-kata-v2"),
    ],
)
def test_a_shim_is_called_after_its_runtime_type(shim_type: str, program: str) -> None:
    assert shim_program(shim_type) == program


def test_programs_that_are_shims_are_called_like_their_type() -> None:
    for runtime in KNOWN_RUNTIMES:
        if runtime.is_shim:
            assert shim_program(runtime.shim_type) == Path(runtime.program).name
