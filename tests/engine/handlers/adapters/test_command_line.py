"""A runtime's command line: what it is called with, and what its complaints become."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from moorage.api.logs import LineFormatter
from moorage.engine.handlers.adapters import AdapterError, Task, TaskNotFoundError
from moorage.engine.handlers.adapters.command_line import CommandLine, last_log_error, refusal
from moorage.engine.handlers.adapters.oci import OciAdapter, OciRuntime
from tests.engine.handlers.programs import program


@pytest.mark.parametrize(
    ("command", "complaint", "is_gone"),
    [
        ("kill", "container does not exist", True),
        ("delete", "container does not exist", True),
        ("delete", "No such process", True),
        ("kill", "process is already stopped", True),
        ("kill", "unable to signal init: os: process already finished", True),
        ("kill", "permission denied", False),
        ("delete", "device or resource busy", False),
        ("start", "executable not found", False),
        ("update", "container does not exist", False),
    ],
)
def test_only_a_kill_or_a_deletion_finds_a_task_gone(
    command: str, complaint: str, is_gone: bool
) -> None:
    error = refusal(command, 1, complaint)
    assert isinstance(error, TaskNotFoundError) is is_gone
    assert str(error) == complaint


def test_refusal_without_message_names_the_command_and_its_status() -> None:
    assert str(refusal("start", 3, " \n")) == "start ended with status 3"
    assert str(refusal("start", 3, "two\n  lines")) == "two lines"
    assert len(str(refusal("start", 1, "x" * 10_000))) == 4096


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ((), ""),
        (('{"level":"error","msg":"first"}', '{"level":"error","msg":"last"}'), "last"),
        (('{"level":"fatal","msg":"end"}', '{"level":"warning","msg":"w"}'), "end"),
        (('{"msg":"no level"}', "no json", "[]"), "no level"),
        (('{"level":"info","msg":"fine"}',), ""),
        (('{"level":"error","msg":"e"}', "no json"), "e"),
    ],
)
def test_the_last_error_of_a_log_counts(
    tmp_path: Path, lines: tuple[str, ...], complaint: str
) -> None:
    log = tmp_path / "log"
    assert last_log_error(log) == ""
    log.write_text("\n".join(lines))
    assert last_log_error(log) == complaint


def recorder(directory: Path, then: str = "exit 0") -> tuple[Path, Path]:
    """A runtime that writes its command lines to a file."""
    lines = directory / "lines"
    return program(directory / "bin", "recorder", f'echo "$*" >> {lines}\n{then}'), lines


async def test_a_command_has_the_options_first_and_gives_what_it_prints(tmp_path: Path) -> None:
    binary, lines = recorder(tmp_path, "echo printed")
    command = CommandLine(binary, ("--root", "/r"), tmp_path)
    assert await command.run("state", "c1") == "printed\n"
    words = lines.read_text().split()
    assert words[:3] == ["--root", "/r", "--log"]
    assert words[4:] == ["--log-format", "json", "state", "c1"]
    assert not Path(words[3]).exists()  # noqa: ASYNC240


async def test_each_command_is_logged_for_debugging(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    await CommandLine(Path("/bin/true"), (), tmp_path).run("state", "c1")
    (record,) = [record for record in caplog.records if record.getMessage() == "runtime command"]
    assert "program=/bin/true" in (line := LineFormatter().format(record))
    assert 'words="state c1"' in line


async def test_deletion_of_a_missing_container_is_no_error(tmp_path: Path) -> None:
    gone, lines = recorder(tmp_path, "echo container does not exist >&2; exit 1")
    await CommandLine(gone, (), tmp_path).delete("c1")
    assert lines.read_text().endswith("delete --force c1\n")
    busy, _ = recorder(tmp_path, "echo busy >&2; exit 1")
    with pytest.raises(AdapterError, match=r"^busy$"):
        await CommandLine(busy, (), tmp_path).delete("c1")


async def test_a_runtime_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match="absent: No such file or directory"):
        await CommandLine(tmp_path / "absent", (), tmp_path).run("state")


class FailingConmon:
    """A monitor under which no task is created, and that has noted an end."""

    async def create(self, *_: Any, **__: Any) -> int:
        raise AdapterError("cannot create")

    def exit_of(self, _: Task) -> object:
        return "ended"


async def test_what_a_failed_creation_left_is_deleted(tmp_path: Path) -> None:
    binary, lines = recorder(tmp_path)
    conmon: Any = FailingConmon()
    unused: Any = None
    runtime = OciRuntime(program=binary, root=tmp_path / "r", arguments=())
    adapter = OciAdapter(runtime, conmon, unused, tmp_path)
    task = Task(id="c1", bundle=tmp_path, sandbox_id="s1")
    with pytest.raises(AdapterError, match=r"^cannot create$"):
        await adapter.create(task)
    (line,) = lines.read_text().splitlines()
    assert line.endswith("delete --force c1")
    assert f"--root={tmp_path}/r" in line
