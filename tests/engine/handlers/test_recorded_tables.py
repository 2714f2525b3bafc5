"""The known runtimes and the files generated for them, against recorded tables."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

from moorage.engine.handlers.runtimes import KNOWN_RUNTIMES
from moorage.engine.handlers.search_path import Program
from moorage.engine.handlers.templates import generate
from moorage.linux.program import Version
from tests.recording import assert_recorded


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def test_known_runtimes() -> None:
    table = {f"{number} {runtime.name}": _plain(asdict(runtime))
             for number, runtime in enumerate(KNOWN_RUNTIMES)}  # fmt: skip
    assert_recorded("engine/handlers/runtimes", table)


def test_generated_files(tmp_path: Path) -> None:

    configuration = tmp_path / "configuration.toml"
    configuration.touch()
    # Every configuration is there, at a place of the test's.
    runtimes = [replace(runtime, configurations=(configuration,) if runtime.configurations else ())
                for runtime in KNOWN_RUNTIMES]  # fmt: skip
    programs = {runtime.program: Program(Path("/usr/bin") / runtime.program, Version((1, 0), "1.0"))
                for runtime in runtimes}  # fmt: skip
    table = {
        name: [line for line in text.replace(str(tmp_path), "/etc/x").splitlines()
               if not line.startswith("#")]
        for name, text in generate(programs, runtimes).items()
    }  # fmt: skip
    assert_recorded("engine/handlers/generated", table)
