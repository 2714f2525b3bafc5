"""Forks of programs: that they have, print and return what the programs do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from moorage.cluster import Cluster
from moorage.linux.process import arguments, descendants, parent
from tests.forks import Fork, run_moor
from tests.running import MOOR, RunningCluster, until


@pytest.mark.parametrize(
    "words",
    [
        ("--version",),
        ("run", "--help"),
        ("no-such-command",),
        ("status", "--data-dir", "nowhere"),
        ("image", "load", "no-such-file"),
    ],
    ids=" ".join,
)
def test_a_command_ends_and_prints_as_the_program_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MOORAGE_DATA_DIR", "elsewhere")
    program = subprocess.run([*MOOR, *words], capture_output=True, text=True, check=False)
    command = run_moor(*words, timeout_s=60)
    assert command.stdout == program.stdout
    assert command.stderr == program.stderr
    assert command.returncode == program.returncode


def _commands() -> list[int]:
    """The `moor` commands that run as forks for this process."""
    return [pid for pid in descendants([os.getpid()]) if "moorage.cli" in (arguments(pid) or ())]


def test_a_command_that_does_not_end_in_time_is_killed(control_plane: RunningCluster) -> None:
    follow = ("logs", "-f", "--data-dir", str(control_plane.data_dir))
    with pytest.raises(subprocess.TimeoutExpired):
        run_moor(*follow, timeout_s=1)
    assert _commands() == []


def test_a_command_that_a_signal_ends(control_plane: RunningCluster) -> None:
    follow = ("logs", "-f", "--data-dir", str(control_plane.data_dir))
    with ThreadPoolExecutor() as threads:
        following = threads.submit(run_moor, *follow, timeout_s=60)
        until(lambda: len(_commands()) == 1, "the command")
        (command,) = _commands()
        os.kill(command, signal.SIGKILL)
        assert following.result().returncode == -signal.SIGKILL


SHOWS = """
import os, signal, sys
print(sys.argv[1:], os.getcwd(), os.environ["NAME"], os.getsid(0) == os.getpid())
print(sorted(map(int, os.listdir("/proc/self/fd")))[:4], os.read(int(sys.argv[1]), 10))
print(open("/proc/self/cmdline").read().rstrip("\\0").split("\\0")[1:])
print(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)
sys.exit("the end")
"""


@pytest.mark.parametrize("is_session", [False, True])
def test_a_fork_has_what_the_program_would_have(tmp_path: Path, is_session: bool) -> None:
    (tmp_path / "shows.py").write_text(SHOWS)
    read_end, write_end = os.pipe()
    os.write(write_end, b"text")
    options: dict[str, Any] = {
        "stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE,
        "text": True, "cwd": tmp_path, "pass_fds": (read_end,), "start_new_session": is_session,
        "env": os.environ | {"NAME": "value"},
    }  # fmt: skip
    # Found in the directory, as by the interpreter.
    words = ["shows", str(read_end), "a b"]
    with subprocess.Popen([sys.executable, "-m", *words], **options) as program:
        executed = program.communicate(timeout=60)
    os.write(write_end, b"text")
    with Fork(words, **options) as fork:
        forked = fork.communicate(timeout=60)
    for end in (read_end, write_end):
        os.close(end)
    assert "the end" in executed[1]
    assert forked == executed
    assert fork.returncode == program.returncode == 1


def test_parts_are_children_of_their_supervisor(control_plane: RunningCluster) -> None:
    supervisor = Cluster(control_plane.data_dir).pid
    assert supervisor is not None
    for name in ("apiserver", "controllers"):
        pid = control_plane.part(name)["pid"]
        assert parent(pid) == supervisor
        words = arguments(pid) or []
        assert words[1:5] == ["-m", "moorage.cluster.parts", name, str(control_plane.data_dir)]
