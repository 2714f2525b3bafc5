"""Processes found by their arguments and by who started them."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.linux.process import descendants, held, processes_of
from tests.running import until


@pytest.fixture
def tree() -> Iterator[tuple[int, str]]:
    """A shell that started a shell that started another, and a word they all have."""
    word = secrets.token_hex(8)
    script = f"sh -c 'sh -c \"sleep 1000; : {word}\"; : {word}'; : {word}"
    argv = [shutil.which("sh") or "sh", "-c", script, word]
    with subprocess.Popen(argv, start_new_session=True) as process:
        try:
            until(lambda: len(descendants([process.pid])) == 4, "four processes", 5)
            yield process.pid, word
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def test_all_that_a_process_started_is_found_first_the_eldest(tree: tuple[int, str]) -> None:
    pid, _ = tree
    pids = descendants([pid])
    assert pids[0] == pid
    assert descendants(pids) == pids
    parents = [int(Path(f"/proc/{child}/stat").read_text().split()[3]) for child in pids]
    assert parents[1:] == pids[:-1]


def test_a_process_is_found_by_program_and_arguments(tree: tuple[int, str]) -> None:
    pid, word = tree
    program = Path(shutil.which("sh") or "sh")
    assert processes_of(program, ("-c", word)) == [pid]
    assert processes_of(program, (word, "other")) == []
    assert processes_of(Path("/bin/other"), (word,)) == []


def test_what_has_ended_is_not_held(tree: tuple[int, str]) -> None:
    pid, _ = tree
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    (process,) = held([pid, ended.pid])
    assert process.pid == pid
    process.close()
    assert descendants([ended.pid]) == [ended.pid]


def test_arguments_that_are_no_text_hide_no_process() -> None:
    word = secrets.token_hex(8)
    with subprocess.Popen([b"sleep", b"1000"]) as plain, subprocess.Popen(
        [b"sh", b"-c", b"read line", b"\xff", word.encode()], stdin=subprocess.PIPE
    ) as odd:  # fmt: skip
        try:
            until(lambda: processes_of(Path("sh"), (word,)) == [odd.pid], "it is found", 5)
            assert plain.pid in processes_of(Path("sleep"), ("1000",))
        finally:
            for process in (plain, odd):
                process.kill()


def test_a_table_that_changes_while_it_is_read_has_no_circle() -> None:
    """A process ID that is used again meanwhile can make a process its own ancestor."""
    parents = {1: 0, 2: 4, 3: 2, 4: 3}
    assert descendants([2], lambda: list(parents), parents.get) == [2, 3, 4]
