"""Real processes: distinguished, awaited, ended."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.linux.process import Identity, Process, began, has_terminal, parent, state
from tests.descriptors import open_descriptors


def launch(tmp_path: Path, script: str) -> Process:
    environment = {"PATH": os.environ["PATH"]}
    return Process.launch(["sh", "-c", script], log=tmp_path / "l" / "log", environment=environment)


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A process that is not ours to wait for, as far as `Process` knows."""
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


@pytest.mark.parametrize(
    ("script", "how"), [("exit 0", "exit status 0"), ("exit 7", "exit status 7"),
                        ("kill -9 $$", "signal SIGKILL")]
)  # fmt: skip
async def test_how_a_child_ended(tmp_path: Path, script: str, how: str) -> None:
    process = launch(tmp_path, script)
    assert await process.ended() == how
    process.close()


async def test_outputs_are_appended_to_the_log(tmp_path: Path) -> None:
    for word in ("one", "two"):
        process = launch(tmp_path, f"echo {word}; echo {word}! >&2")
        await process.ended()
        process.close()
    assert (tmp_path / "l" / "log").read_text() == "one\none!\ntwo\ntwo!\n"


async def test_one_that_ignores_the_signal_is_killed(tmp_path: Path) -> None:
    process = launch(tmp_path, "trap '' TERM; echo ready; while :; do sleep 1; done")
    deadline = time.monotonic() + 10
    while "ready" not in (tmp_path / "l" / "log").read_text():
        assert time.monotonic() < deadline
    await process.stop(0.05)
    assert began(process.pid) is None
    process.send(signal.SIGTERM)
    process.close()


async def test_unrelated_process_is_found_by_its_identity(
    stranger: subprocess.Popen[bytes],
) -> None:
    ticks = began(stranger.pid)
    assert ticks is not None
    process = Process.find(Identity(stranger.pid, ticks))
    assert process is not None
    assert process.identity == Identity(stranger.pid, ticks)
    await process.stop(10)
    assert await process.ended() == "ended"
    process.close()


def test_an_id_that_was_given_out_again_is_another_process(
    stranger: subprocess.Popen[bytes],
) -> None:
    ticks = began(stranger.pid) or 0
    assert Process.find(Identity(stranger.pid, ticks - 1)) is None


def test_what_has_ended_is_not_found(stranger: subprocess.Popen[bytes]) -> None:
    ticks = began(stranger.pid) or 0
    descriptor = os.pidfd_open(stranger.pid)
    stranger.kill()
    os.waitid(os.P_PIDFD, descriptor, os.WEXITED | os.WNOWAIT)
    os.close(descriptor)
    # Its parent has not waited for it, so it is still listed, as a zombie.
    assert state(stranger.pid) == "Z"
    assert Process.find(Identity(stranger.pid, ticks)) is None
    stranger.wait()
    assert Process.find(Identity(stranger.pid, ticks)) is None
    assert (began(stranger.pid), parent(stranger.pid), state(stranger.pid)) == (None, None, "")


def test_a_name_with_blanks_and_brackets_is_no_obstacle(tmp_path: Path) -> None:
    odd = tmp_path / "a ) R 1 b"
    odd.symlink_to("/bin/sleep")
    with subprocess.Popen([odd, "60"]) as process:
        try:
            assert parent(process.pid) == os.getpid()
            assert began(process.pid)
        finally:
            process.kill()


async def test_a_program_has_its_own_session_and_no_input_and_its_environment_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNRELATED", "set")
    process = launch(tmp_path, "cat; echo \"$UNRELATED. $(cut -d' ' -f6 /proc/$$/stat) $$\"")
    assert await process.ended() == "exit status 0"
    process.close()
    word, session, own = (tmp_path / "l" / "log").read_text().split()
    assert (word, session) == (".", own)
    assert own == str(process.pid)


async def test_nothing_stays_open_of_what_was_looked_for(
    stranger: subprocess.Popen[bytes],
) -> None:
    ticks = began(stranger.pid)
    assert ticks is not None
    before = open_descriptors()
    assert Process.find(Identity(stranger.pid, ticks + 1)) is None
    process = Process.find(Identity(stranger.pid, ticks))
    assert process is not None
    assert open_descriptors() == before + 1
    process.close()
    assert open_descriptors() == before


def test_the_identity_of_what_has_ended_is_an_error(stranger: subprocess.Popen[bytes]) -> None:
    process = Process(stranger.pid)
    stranger.kill()
    stranger.wait()
    with pytest.raises(ProcessLookupError):
        _ = process.identity
    process.close()


def test_a_process_that_has_ended_has_no_terminal() -> None:
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    assert not has_terminal(ended.pid)
