"""Which programs a definition needs, and what is known of each."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from moorage.engine.handlers import Machine, probe
from moorage.engine.handlers.definition import HandlerDefinition, parse_definition
from moorage.engine.handlers.probe import Prober, required_programs
from moorage.engine.handlers.runtimes import Runtime
from moorage.engine.handlers.search_path import probe_program
from tests.engine.handlers.programs import program, runtime

MACHINE = Machine(kernel=(6, 1), has_kvm=True)


def a_definition(directory: Path, name: str, text: str) -> HandlerDefinition:
    path = directory / f"{name}.toml"
    return parse_definition(path, text.encode())


def a_shim(directory: Path, binary: str, type_: str, more: str = "") -> HandlerDefinition:
    text = f'adapter = "shim"\nbinary = "{binary}"\n[options]\nruntime_type = "{type_}"\n{more}'
    return a_definition(directory, "own", text)


def test_a_program_of_which_nothing_is_known_is_asked_for_its_version(tmp_path: Path) -> None:
    definition = a_definition(tmp_path, "own", 'adapter = "oci"\nbinary = "/opt/new"\n')
    (required,) = required_programs(definition)
    assert required.spelled == "/opt/new"
    assert (required.runtime.name, required.runtime.program) == ("new", "new")
    assert required.runtime.handlers == ("own",)
    assert not required.runtime.is_shim
    assert required.runtime.version_arguments == ("--version",)


def test_a_shim_of_which_nothing_is_known_is_asked_nothing(tmp_path: Path) -> None:
    (required,) = required_programs(a_shim(tmp_path, "/opt/containerd-shim-new-v1", "io.x.new.v1"))
    assert required.runtime.is_shim
    assert required.runtime.version_arguments == ()


def test_a_known_name_in_another_role_is_another_program(tmp_path: Path) -> None:
    (required,) = required_programs(a_shim(tmp_path, "/opt/runc", "io.x.new.v1"))
    assert required.runtime.is_shim
    assert required.runtime.handlers == ("own",)


def test_a_known_program_keeps_what_is_known_but_its_configuration(tmp_path: Path) -> None:
    (kata,) = required_programs(a_shim(tmp_path, "/opt/containerd-shim-kata-v2", "io.x.kata.v2"))
    assert kata.runtime.is_shim
    assert kata.runtime.name.startswith("kata")
    assert kata.runtime.configurations == ()


def test_the_runtime_behind_a_shim_is_required_too(tmp_path: Path) -> None:
    definition = a_shim(
        tmp_path, "containerd-shim-runc-v2", "io.containerd.runc.v2", 'runtime_binary = "crun"\n'
    )
    shim, behind = required_programs(definition)
    assert (shim.spelled, shim.runtime.is_shim) == ("containerd-shim-runc-v2", True)
    assert (behind.spelled, behind.runtime.name, behind.runtime.is_shim) == ("crun", "crun", False)


@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        (0o644, ""),
        (0o666, "{path} can be written by others (mode 0666)"),
        (None, "its configuration {path} does not exist"),
    ],
)
async def test_the_configuration_of_a_shim(tmp_path: Path, mode: int | None, reason: str) -> None:
    path = tmp_path / "kata.toml"
    if mode is not None:
        path.touch()
        path.chmod(mode)
    program(tmp_path / "bin", "containerd-shim-kata-v2", "echo 3.2.0")
    definition = a_shim(
        tmp_path, "containerd-shim-kata-v2", "io.x.kata.v2", f'config_path = "{path}"\n'
    )
    async with asyncio.TaskGroup() as group:
        prober = Prober(group, str(tmp_path / "bin"), lambda: None)
        prober.offer(definition, MACHINE)
        await asyncio.wait(prober.pending)
        offered = prober.offer(definition, MACHINE)
    assert offered.is_available == (not reason)
    assert reason.format(path=path) in offered.verdict.reason


async def test_a_runtime_that_others_may_write_is_known_before_its_shim_has_answered(
    tmp_path: Path,
) -> None:
    name = "containerd-shim-runc-v2"
    definition = a_shim(tmp_path, name, "io.containerd.runc.v2", 'runtime_binary = "crun"\n')
    program(tmp_path / "bin", name, "echo 2.0.0")
    behind = runtime(tmp_path / "bin", "crun", "1.15")
    async with asyncio.TaskGroup() as group:
        prober = Prober(group, str(tmp_path / "bin"), lambda: None)
        assert prober.offer(definition, MACHINE).verdict is probe.PENDING
        behind.chmod(0o777)
        offered = prober.offer(definition, MACHINE)
        assert prober.pending
    assert f"{behind} can be written by others" in offered.verdict.reason


async def test_a_program_is_asked_once_until_its_file_changes(tmp_path: Path) -> None:
    directory, results = tmp_path / "bin", 0

    def on_result() -> None:
        nonlocal results
        results += 1

    definition = a_definition(tmp_path, "own", 'adapter = "oci"\nbinary = "new"\n')
    async with asyncio.TaskGroup() as group:
        prober = Prober(group, str(directory), on_result)
        for version, wanted in (("1.0", 1), ("1.0", 1), ("1.1", 2)):
            if results < wanted:
                runtime(directory, "new", version)
            prober.offer(definition, MACHINE)
            if prober.pending:
                await asyncio.wait(prober.pending)
            assert prober.offer(definition, MACHINE).version == version
            await asyncio.sleep(0)
            assert results == wanted
        prober.forget()
        assert not prober.offer(definition, MACHINE).is_available
        await asyncio.wait(prober.pending)
        await asyncio.sleep(0)
        assert results == 3


async def test_of_a_program_only_the_newest_state_is_remembered(tmp_path: Path) -> None:
    directory = tmp_path / "bin"
    definition = a_definition(tmp_path, "own", 'adapter = "oci"\nbinary = "new"\n')
    async with asyncio.TaskGroup() as group:
        prober = Prober(group, str(directory), lambda: None, deadline_s=0.2)
        for version in ("1.0", "1.1", "1.2"):
            program(directory, "new", f"sleep 5; echo new version {version}")
            prober.offer(definition, MACHINE)
        assert len(prober.pending) == 1
        prober.close()


async def test_a_program_that_does_not_answer_is_asked_again_until_it_does(tmp_path: Path) -> None:
    directory, busy, asked = tmp_path / "bin", tmp_path / "busy", tmp_path / "asked"
    busy.touch()
    program(
        directory,
        "new",
        f"echo >>{asked}; [ ! -e {busy} ] || exec sleep 1000\n"
        "[ $1 = features ] && echo '{}' || echo new version 1.0",
    )
    definition = a_definition(tmp_path, "own", 'adapter = "oci"\nbinary = "new"\n')
    answered = asyncio.Event()
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        prober = Prober(group, str(directory), answered.set, deadline_s=0.3, retry_s=0.01)
        prober.offer(definition, MACHINE)
        for _ in range(2):
            await answered.wait()
            answered.clear()
            offered = prober.offer(definition, MACHINE)
            # Not pending while it is asked again.
            assert "no answer within" in offered.verdict.reason
        busy.unlink()
        while not prober.offer(definition, MACHINE).is_available:
            await answered.wait()
            answered.clear()
        assert prober.offer(definition, MACHINE).version == "1.0"
        prober.close()
    assert len(asked.read_text().splitlines()) >= 4


async def test_a_closed_prober_asks_nothing_again(tmp_path: Path) -> None:
    directory = tmp_path / "bin"
    program(directory, "new", "sleep 1000")
    definition = a_definition(tmp_path, "own", 'adapter = "oci"\nbinary = "new"\n')
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        prober = Prober(group, str(directory), lambda: None, deadline_s=0.05, retry_s=1000.0)
        prober.offer(definition, MACHINE)
        (query,) = prober.pending
        await asyncio.wait({query})
        prober.close()


@pytest.mark.parametrize(
    ("spelled", "is_shim", "name", "version_arguments"),
    [
        ("/usr/bin/known", False, "Known", ("-v",)),
        ("known", True, "known", ()),
        ("other", False, "other", ("--version",)),
        ("/x/other", True, "other", ()),
    ],
)
def test_the_runtime_behind_a_definition(
    spelled: str, is_shim: bool, name: str, version_arguments: tuple[str, ...]
) -> None:
    known = Runtime(
        name="Known", program="known", handlers=("k",), version_arguments=("-v",),
        configurations=(Path("/etc/known.toml"),),
    )  # fmt: skip
    text = b'adapter = "oci"\nbinary = "x"\n'
    result = probe.runtime_of(
        spelled, parse_definition(Path("/h/one.toml"), text), is_shim=is_shim, runtimes=(known,)
    )
    assert (result.name, result.is_shim, result.version_arguments) == (
        name, is_shim, version_arguments
    )  # fmt: skip
    assert result.configurations == ()
    assert result.handlers == (("k",) if name == "Known" else ("one",))


async def test_a_program_is_queried_with_the_arguments_of_its_runtime(tmp_path: Path) -> None:
    """Shims print their version for `-v`, and start to serve without it."""
    path = program(tmp_path, "shim", "case $1 in -v) echo shim version 1.2;; *) exit 1;; esac")
    known = Runtime(
        name="s", program="shim", handlers=("s",), version_arguments=("-v",), is_shim=True
    )
    probed = await probe_program(known, path, (6, 1))
    assert str(probed.version) == "1.2"


async def test_a_query_that_was_cancelled_has_no_answer(tmp_path: Path) -> None:
    path = program(tmp_path, "slow", "sleep 1000")
    known = Runtime(name="s", program="slow", handlers=("s",))
    async with asyncio.TaskGroup() as group:
        prober = Prober(group, str(tmp_path), lambda: None)
        assert prober.query(known, path, MACHINE) is None
        (pending,) = prober.pending
        pending.cancel()
        await asyncio.wait({pending})
        assert prober.query(known, path, MACHINE) is None
