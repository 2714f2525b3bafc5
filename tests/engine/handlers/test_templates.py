"""The files that a first start writes are files that can be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage.engine.handlers import (
    KNOWN_RUNTIMES,
    AdapterKind,
    RunscOptions,
    ShimOptions,
    parse_definition,
)
from moorage.engine.handlers.search_path import Program
from moorage.engine.handlers.templates import generate, write_missing
from moorage.linux.program import Version, parse_version

PROGRAMS = {
    runtime.program: Program(Path("/usr/bin") / runtime.program, Version((1, 0), "1.0"))
    for runtime in KNOWN_RUNTIMES
}
TEXTS = generate(PROGRAMS)
OLD_GVISOR = RunscOptions(platform="ptrace", network="host", ignore_cgroups=True)


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_every_generated_file_is_a_definition(name: str) -> None:
    definition = parse_definition(Path(f"/x/{name}.toml"), TEXTS[name].encode())
    assert definition.name == name
    assert definition.binary.startswith("/usr/bin/")
    assert "never overwritten" in TEXTS[name]


def test_each_runtime_is_driven_its_own_way() -> None:
    kinds = {
        name: parse_definition(Path(f"/x/{name}.toml"), text.encode()).adapter
        for name, text in TEXTS.items()
    }
    assert kinds["runc"] is kinds["youki"] is kinds["nvidia"] is AdapterKind.OCI
    assert kinds["gvisor"] is kinds["runsc"] is AdapterKind.RUNSC
    assert kinds["kata"] is kinds["wasmtime"] is AdapterKind.SHIM


def test_only_what_has_a_guest_needs_a_task_for_the_sandbox() -> None:
    kata = parse_definition(Path("/x/kata.toml"), TEXTS["kata"].encode()).options
    wasm = parse_definition(Path("/x/spin.toml"), TEXTS["spin"].encode()).options
    assert kata == ShimOptions(runtime_type="io.containerd.kata.v2")
    assert wasm == ShimOptions(runtime_type="io.containerd.spin.v2", needs_sandbox=False)


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ("runsc version release-20221026.0", OLD_GVISOR),
        ("runsc version 0.0~20221219.0", OLD_GVISOR),
        ("runsc version release-20250319.0", RunscOptions()),
    ],
)
def test_an_old_gvisor_gets_the_flags_it_needs(printed: str, expected: RunscOptions) -> None:
    program = Program(Path("/usr/bin/runsc"), parse_version(printed))
    text = generate({"runsc": program})["runsc"]
    assert parse_definition(Path("/x/runsc.toml"), text.encode()).options == expected


def test_a_variant_without_its_configuration_gets_no_file() -> None:
    assert "kata" in TEXTS
    assert "kata-qemu" not in TEXTS


def test_only_missing_files_are_written_and_whole(tmp_path: Path) -> None:
    directory = tmp_path / "new"
    assert write_missing(directory, {"a": "one", "b": "two"}, taken=("b",)) == ("a",)
    assert [path.name for path in directory.iterdir()] == ["a.toml"]
    assert write_missing(directory, {"a": "other"}, taken=()) == ()
    assert (directory / "a.toml").read_text() == "one"
