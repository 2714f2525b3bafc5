"""Scripts of system calls: what the interpreter's machine code does with them, on this machine."""

from __future__ import annotations

import errno
import os
import platform
import struct
import subprocess
from pathlib import Path

import pytest

from moorage.runtimes.probing.programs import architectures, parse_output, program_files
from moorage.runtimes.probing.programs.output import ProgramOutput, error_name
from moorage.runtimes.probing.programs.script import AT_FDCWD, Script, text_of

_ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), "")
needs_interpreter = pytest.mark.skipif(
    not _ARCHITECTURE, reason="there is no interpreter for this machine"
)


def _run(script: Script, directory: Path) -> ProgramOutput:
    program = directory / "program"
    program.write_bytes(script.finished())
    program.chmod(0o755)
    done = subprocess.run([program], capture_output=True, timeout=30, check=True)
    return parse_output(done.stdout.decode())


@needs_interpreter
def test_results_and_files_are_printed_by_name(tmp_path: Path) -> None:
    script = Script(_ARCHITECTURE)
    script.print_file("/proc/sys/kernel/random/boot_id")
    script.report("parent", script.call("getppid"))
    script.report("missing", script.call("openat", AT_FDCWD, text_of("/none"), 0))
    output = _run(script, tmp_path)
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert output.section("/proc/sys/kernel/random/boot_id") == boot_id
    assert output.results["parent"] == os.getpid()
    assert output.results["missing"] == -errno.ENOENT


@needs_interpreter
def test_a_result_is_the_argument_of_a_later_call(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("content")
    script = Script(_ARCHITECTURE)
    descriptor = script.call("openat", AT_FDCWD, text_of(str(file)), 0)
    buffer = script.buffer(8)
    script.report("count", script.call("read", descriptor, buffer, 7))
    script.report("read", buffer.at(0))
    output = _run(script, tmp_path)
    assert output.results["count"] == 7
    assert struct.pack("<Q", output.results["read"]) == b"content\0"


@needs_interpreter
def test_a_child_that_is_killed_is_named_with_its_signal(tmp_path: Path) -> None:
    script = Script(_ARCHITECTURE)
    with script.child("killed"):
        script.call("kill", script.call("getpid"), 11)
    with script.child("ended"):
        script.report("pid", script.call("getpid"))
    output = _run(script, tmp_path)
    assert (output.signal_of("killed"), output.signal_of("ended")) == (11, 0)
    assert output.results["pid"] > 0


@needs_interpreter
def test_a_child_without_end_is_ended_by_its_alarm(tmp_path: Path) -> None:
    script = Script(_ARCHITECTURE)
    with script.child("endless", limit_s=1):
        script.call("getppid", repeats=True)
    with script.child("around", limit_s=1), script.endless():
        script.call("getppid")
        script.call("getpid")
    output = _run(script, tmp_path)
    assert (output.signal_of("endless"), output.signal_of("around")) == (14, 14)


@needs_interpreter
def test_processes_run_beside_each_other(tmp_path: Path) -> None:
    script = Script(_ARCHITECTURE)
    with script.concurrent() as pid:
        script.sleep(5000)
    script.report("alive", script.call("kill", pid, 0))
    script.call("kill", pid, 9)
    assert _run(script, tmp_path).results["alive"] == 0


@pytest.mark.parametrize("architecture", architectures())
def test_programs_are_small_and_the_same_each_time(architecture: str) -> None:
    files = program_files(architecture)
    assert files == program_files(architecture)
    for content in files.values():
        assert content.startswith(b"\x7fELF")
        assert len(content) < 32 * 1024


def test_there_are_no_programs_for_an_unknown_architecture() -> None:
    assert program_files("s390x") == {}


@pytest.mark.parametrize(
    ("result", "name"), [(0, ""), (3, ""), (-22, "EINVAL"), (-38, "ENOSYS"), (-4000, "error 4000")]
)
def test_results_below_zero_are_errors(result: int, name: str) -> None:
    assert error_name(result) == name
