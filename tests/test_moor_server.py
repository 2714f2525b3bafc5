"""The server of `moor` commands: that a fork of it ends and prints as the program does."""

from __future__ import annotations

import os
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from moorage.linux.process import arguments, descendants
from tests.moor_server import run_moor
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
    """The processes of the server of this process: one is the server itself."""
    return [
        pid for pid in descendants([os.getpid()]) if "tests.moor_server" in (arguments(pid) or ())
    ]


def test_a_command_that_does_not_end_in_time_is_killed(control_plane: RunningCluster) -> None:
    follow = ("logs", "-f", "--data-dir", str(control_plane.data_dir))
    with pytest.raises(subprocess.TimeoutExpired):
        run_moor(*follow, timeout_s=1)
    until(lambda: len(_commands()) == 1, "only the server is left")


def test_a_command_that_a_signal_ends(control_plane: RunningCluster) -> None:
    follow = ("logs", "-f", "--data-dir", str(control_plane.data_dir))
    run_moor("--version", timeout_s=60)
    (server,) = _commands()
    with ThreadPoolExecutor() as threads:
        following = threads.submit(run_moor, *follow, timeout_s=60)
        until(lambda: len(_commands()) == 2, "the command")
        (command,) = set(_commands()) - {server}
        os.kill(command, signal.SIGKILL)
        assert following.result().returncode == -signal.SIGKILL
