"""How a shim's program is called: with a program in its place that records everything."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage.engine.handlers.adapters import AdapterError
from moorage.engine.handlers.adapters.generated import shim_pb2 as pb
from moorage.engine.handlers.adapters.shim.program import Address, ShimProgram
from tests.engine.handlers.programs import program


def shim(directory: Path, script: str) -> ShimProgram:
    record = (
        f'printf "%s\\n" "$@" > {directory}/argv; env > {directory}/env; pwd > {directory}/pwd; '
        f"cat > {directory}/input\n{script}"
    )
    made = program(directory / "bin", "containerd-shim-x-v1", record)
    return ShimProgram(made, directory / "events", "/usr/bin:/bin")


async def test_a_start_names_everything_and_gives_the_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/h")
    monkeypatch.setenv("SECRET", "x")
    monkeypatch.delenv("TMPDIR", raising=False)
    bundle = tmp_path / "b"
    bundle.mkdir()
    connection = await shim(tmp_path, "echo unix:///run/s.sock").start("t1", bundle, b"options")
    assert connection == Address("/run/s.sock", 2)
    events = str(tmp_path / "events")
    assert (tmp_path / "argv").read_text().splitlines() == [
        "-namespace", "moorage", "-address", events, "-publish-binary", "/bin/true",
        "-id", "t1", "start",
    ]  # fmt: skip
    assert (tmp_path / "input").read_bytes() == b"options"
    assert (tmp_path / "pwd").read_text().strip() == str(bundle)
    lines = (tmp_path / "env").read_text().splitlines()
    variables = dict(line.split("=", 1) for line in lines if "=" in line)
    for name in ("PWD", "SHLVL", "_", "OLDPWD"):
        variables.pop(name, None)
    assert variables == {
        "HOME": "/h",
        "PATH": "/usr/bin:/bin",
        "TTRPC_ADDRESS": events,
        "GRPC_ADDRESS": events,
        "NAMESPACE": "moorage",
        "MAX_SHIM_VERSION": "3",
        "GOMAXPROCS": "2",
    }


async def test_a_deletion_reads_the_reply(tmp_path: Path) -> None:
    reply = pb.DeleteResponse(pid=7, exit_status=3)
    (tmp_path / "reply").write_bytes(reply.SerializeToString())
    result = await shim(tmp_path, f"cat {tmp_path}/reply").delete("t1", tmp_path)
    assert result == reply
    assert (tmp_path / "argv").read_text().splitlines()[-5:] == [
        "-id", "t1", "-bundle", str(tmp_path), "delete",
    ]  # fmt: skip
    assert (tmp_path / "input").read_bytes() == b""


@pytest.mark.parametrize("verb", ["start", "delete"])
async def test_failure_carries_the_shims_message(tmp_path: Path, verb: str) -> None:
    failing = shim(tmp_path, "echo /run/s.sock; echo no machine >&2; exit 1")
    call = failing.start("t1", tmp_path, b"") if verb == "start" else failing.delete("t1", tmp_path)
    with pytest.raises(AdapterError, match=f"containerd-shim-x-v1 {verb}: no machine"):
        await call


async def test_invalid_reply_and_missing_program_are_errors(tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match="invalid response"):
        await shim(tmp_path, r"printf '\377\377'").delete("t1", tmp_path)
    missing = ShimProgram(tmp_path / "absent", tmp_path / "events", "/bin")
    with pytest.raises(AdapterError, match="absent"):
        await missing.start("t1", tmp_path, b"")
