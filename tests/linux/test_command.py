"""Commands: real programs on this machine."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from moorage.linux.command import Answer, CommandError, must_run, run
from tests.running import until


async def test_what_a_program_says_and_its_status_come_back() -> None:
    answer = await run(["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert (answer.status, answer.output, answer.error) == (3, b"out\n", b"err\n")
    assert answer.complaint == "err"


@pytest.mark.parametrize(
    ("error", "complaint"),
    [
        ("RTNETLINK answers: File exists\nCommand failed -:1\n", "RTNETLINK answers: File exists"),
        ("Command failed -:1\n", "Command failed -:1"),
        ("", "exit status 1"),
    ],
)
def test_the_complaint_is_the_reason_and_not_its_place(error: str, complaint: str) -> None:
    assert Answer(("ip",), 1, b"", error.encode()).complaint == complaint


async def test_input_is_given() -> None:
    assert (await run(["cat"], stdin=b"text")).text == "text"


async def test_a_program_without_input_reads_nothing() -> None:
    assert (await run(["cat"])).text == ""


async def test_a_program_over_its_deadline_ends_with_its_children(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    with pytest.raises(CommandError, match=r"no answer within 0\.3 s"):
        await run(["sh", "-c", f"sleep 60 & echo $! > {pid_file}; wait"], deadline_s=0.3)
    child = int(pid_file.read_text())
    # Killed at once, but the kernel takes its time over the end.
    until(lambda: _has_ended(child), "the child's end", within_s=5)


async def test_child_that_keeps_the_output_open_does_not_block(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    script = f"setsid sleep 60 & echo $! > {pid_file}; echo done"
    try:
        assert (await run(["sh", "-c", script], deadline_s=5)).text == "done\n"
    finally:
        os.kill(int(pid_file.read_text()), signal.SIGKILL)


async def test_an_absent_program_is_named() -> None:
    with pytest.raises(CommandError, match="`/nowhere/moor --version`: No such file"):
        await run(["/nowhere/moor", "--version"])


async def test_must_run_passes_everything_on() -> None:
    script = 'cat; printf "$WORD"'
    answer = await must_run(["/bin/sh", "-c", script], stdin=b"in", environment={"WORD": "out"})
    assert answer.text == "inout"


async def test_must_run_raises_with_the_programs_message() -> None:
    with pytest.raises(CommandError, match=r"`sh -c .*`: it is broken"):
        await must_run(["sh", "-c", "echo it is broken >&2; exit 1"])


def _has_ended(pid: int) -> bool:
    """Whether a process is gone, or only waits for its parent to notice."""
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"
