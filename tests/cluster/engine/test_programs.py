"""Programs of another engine's handlers, from containerd's configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from moorage.cluster.engine.programs import EnginePrograms, HandlerProgram, handler_programs
from tests.clocks import FakeClock
from tests.engine.handlers.programs import program, runtime
from tests.wire.cri.test_handlers import engine

DEEP = "[" * 100_000 + "]" * 100_000
RUNC, KATA = "io.containerd.runc.v2", "io.containerd.kata.v2"


def configuration(**runtimes: Any) -> str:
    return json.dumps({"containerd": {"defaultRuntimeName": "runc", "runtimes": runtimes}})


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ({"runtimeType": RUNC}, ("runc", "")),
        ({"runtimeType": RUNC, "options": None}, ("runc", "")),
        ({"runtimeType": RUNC, "options": {"BinaryName": "/opt/crun"}}, ("/opt/crun", "")),
        ({"runtimeType": KATA}, ("containerd-shim-kata-v2", "")),
        (
            {"runtimeType": KATA, "runtimePath": "/opt/kata", "options": {"ConfigPath": "/k.toml"}},
            ("/opt/kata", "/k.toml"),
        ),
        ({"runtimeType": "io.containerd.runsc.v1"}, ("containerd-shim-runsc-v1", "")),
        ({}, None),
        ({"runtimeType": "x"}, None),
        ({"runtimeType": "a..b"}, None),
        ({"runtimeType": 5}, None),
        ({"runtimeType": RUNC, "options": {"BinaryName": "/bin/\x1b[31mrunc"}}, None),
        ({"runtimeType": RUNC, "options": {"BinaryName": "a" * (1 << 20)}}, None),
        ({"runtimeType": KATA, "options": {"ConfigPath": "/etc/\0"}}, None),
        ([], None),
    ],
)
def test_what_a_table_runs(table: Any, expected: tuple[str, str] | None) -> None:
    found = handler_programs(configuration(one=table, other={"runtimeType": RUNC}))
    assert found["other"].program == "runc"
    one = found.get("one")
    assert (one and (one.program, one.configuration)) == expected
    if one is not None:
        assert json.loads(one.definition) == table


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", '{"sandboxImage": "pause"}', '{"containerd": 1}', DEEP,
        f'{{"containerd": {{"runtimes": {{"a": {DEEP}}}}}}}',
    ],
)  # fmt: skip
def test_the_configuration_of_another_engine_names_none(text: str) -> None:
    assert handler_programs(text) == {}


async def test_program_version_and_files_are_those_on_the_host(tmp_path: Path) -> None:
    runc = runtime(tmp_path / "bin", "runc", "1.2.3")
    kata = program(tmp_path / "bin", "kata-shim", "echo Kata version 4.1.0")
    text = configuration(
        runc={"runtimeType": RUNC, "options": {"BinaryName": str(runc)}},
        kata={
            "runtimeType": KATA, "runtimePath": str(kata),
            "options": {"ConfigPath": "/etc/kata.toml"},
        },
        gone={"runtimeType": RUNC, "options": {"BinaryName": "/nowhere/crun"}},
    )  # fmt: skip
    async with engine(tmp_path, ["", "runc", "kata"], text) as cri:
        clock = FakeClock()
        programs = EnginePrograms(cri, clock, sees_host=True)
        found = {one.name: one for one in await programs.known(["runc", "kata", "gone", "new"])}
        apart = await EnginePrograms(cri, clock, sees_host=False).known(["runc", "kata"])
        shown = found["runc"].program
        assert (shown.name, shown.version, shown.path) == ("runc", "1.2.3", str(runc))
        assert found["runc"].programs == (runc,)
        assert found["kata"].programs == (kata, Path("/etc/kata.toml"))
        assert found["kata"].program.version == "4.1.0"
        assert (found["gone"].program.name, found["gone"].program.version) == ("crun", "")
        assert found["gone"].programs == ()
        assert (found["new"].definition, found["new"].program.name) == ("new", "")
        # A container does not have the host's files: what is at the same path is another program.
        assert [(one.program.name, one.program.version, one.programs) for one in apart] == [
            ("runc", "", ()), ("kata-shim", "", ()),
        ]  # fmt: skip
        runtime(tmp_path / "bin", "runc", "1.2.4")
        (again,) = await programs.known(["runc"])
        assert again.program.version == "1.2.4"


def test_a_definition_is_without_its_handlers_name() -> None:
    found = handler_programs(configuration(a={"runtimeType": RUNC}, b={"runtimeType": RUNC}))
    assert (
        found["a"]
        == found["b"]
        == HandlerProgram(program="runc", definition=f'{{"runtimeType":"{RUNC}"}}')
    )
