"""Handlers are written into a drop-in of CRI-O's, and taken out without a trace."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.engine.handlers import HandlerDefinition, parse_definition
from moorage.migrate.rules.crio import crio_handlers
from moorage.runtimes.installing import RuntimeInstallationError
from moorage.runtimes.installing.engines import CrioConfiguration, EngineFile, applied

DIRECTORY = Path("/etc/crio/crio.conf.d")
MAIN = (
    b'[crio.runtime]\ndefault_runtime = "crun"\n[crio.runtime.runtimes.crun]\nruntime_path = "/a"\n'
)
EMPTY = CrioConfiguration(
    directory=DIRECTORY,
    files=(EngineFile(Path("/etc/crio/crio.conf"), MAIN),),
    offered=frozenset({"", "crun", "runc"}),
)


def _definition(name: str, text: str = 'adapter = "oci"') -> HandlerDefinition:
    return parse_definition(Path(f"{name}.toml"), f'binary = "/opt/{name}"\n{text}\n'.encode())


def _after(configuration: CrioConfiguration, *steps: HandlerDefinition | str) -> CrioConfiguration:
    for step in steps:
        changes = (
            configuration.without_handler(step)
            if isinstance(step, str)
            else configuration.with_handler(step, step.binary)
        )
        configuration = msgspec.structs.replace(
            configuration, files=applied(configuration.files, changes)
        )
    return configuration


def test_a_handler_is_a_drop_in_that_the_reader_of_migration_reads() -> None:
    kata = 'adapter = "shim"\n[options]\nruntime_type = "io.containerd.kata.v2"\nconfig_path = "/k"'
    added = _after(EMPTY, _definition("m", 'adapter = "oci"\n[options]\nroot = "/r"'),
                   _definition("containerd-shim-kata-v2", kata))  # fmt: skip
    assert added.files[0] == EMPTY.files[0]
    assert [file.path.name for file in added.files[1:]] == [
        "90-moorage-m.conf",
        "90-moorage-containerd-shim-kata-v2.conf",
    ]
    assert added.handlers() == {
        "crun": {"runtime_path": "/a"},
        "m": {"runtime_path": "/opt/m", "runtime_type": "oci", "runtime_root": "/r"},
        "containerd-shim-kata-v2": {
            "runtime_path": "/opt/containerd-shim-kata-v2",
            "runtime_type": "vm",
            "runtime_config_path": "/k",
        },
    }
    first, second = (crio_handlers(tomllib.loads(file.text))[0] for file in added.files[1:])
    assert (first.adapter, first.binary, first.options) == ("oci", "/opt/m", {"root": "/r"})
    assert second.adapter == "shim"
    assert second.options == {"runtime_type": "io.containerd.kata.v2", "config_path": "/k"}


@given(
    st.lists(st.from_regex("m-[a-z0-9]{1,9}", fullmatch=True), min_size=1, max_size=4, unique=True),
    st.randoms(),
)
def test_all_files_come_back_whatever_the_order(names: list[str], random: object) -> None:
    added = _after(EMPTY, *map(_definition, names), _definition(names[0]))
    assert added.written() == set(names)
    random.shuffle(names)  # type: ignore[attr-defined]
    assert _after(added, *names) == EMPTY


@pytest.mark.parametrize(
    ("definition", "problem"),
    [
        (_definition("crun"), "`moor runtime` did not write it"),
        (_definition("runc"), "`moor runtime` did not write it"),
        (_definition("m", 'adapter = "oci"\n[options]\nno_new_keyring = true'), "no_new_keyring"),
        (
            _definition("m", 'adapter = "runsc"\n[options]\nplatform = "kvm"'),
            "CRI-O has no platform",
        ),
        (_definition("m", 'adapter = "oci"\nsnapshotter = "stargz"'), "CRI-O has no snapshotter"),
    ],
)
def test_what_cannot_be_said_in_its_words_is_refused(
    definition: HandlerDefinition, problem: str
) -> None:
    with pytest.raises(RuntimeInstallationError, match=problem):
        EMPTY.with_handler(definition, "/opt/m")


def test_handlers_of_others_are_neither_changed_nor_removed() -> None:
    with pytest.raises(RuntimeInstallationError, match="that `moor runtime` wrote"):
        EMPTY.without_handler("crun")
    shadow = EngineFile(
        DIRECTORY / "99-site.conf", b'[crio.runtime.runtimes.m]\nruntime_path = "/x"\n'
    )
    added = _after(EMPTY, _definition("m"))
    shadowed = msgspec.structs.replace(added, files=(*added.files, shadow))
    with pytest.raises(RuntimeInstallationError, match="another file has a table"):
        shadowed.without_handler("m")
    broken = EngineFile(DIRECTORY / "00.conf", b"[crio")
    with pytest.raises(
        RuntimeInstallationError, match=r"00\.conf cannot be changed: it is not TOML"
    ):
        msgspec.structs.replace(EMPTY, files=(broken,)).with_handler(_definition("m"), "/opt/m")
