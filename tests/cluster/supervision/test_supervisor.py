"""The supervisor with real child processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from moorage.cluster.layout import Layout
from moorage.cluster.supervision.supervisor import running_pid

READY = """
from moorage.cluster.supervision.readiness import notify_ready as n
from moorage.linux.own_process import die_with_parent as d
d(); n();"""
BEATS = """
import asyncio, moorage.cluster.supervision.heartbeat as b
import moorage.cluster.supervision.readiness as n
import moorage.linux.own_process as d, time, signal
d.die_with_parent()
async def main():
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, time.sleep, 600)
    beats = asyncio.ensure_future(b.send_heartbeats(0.02))
    await asyncio.sleep(0)
    n.notify_ready()
    await beats
asyncio.run(main())
"""
STAYS = READY + "import signal; signal.pause()"
RUN = """
import os, sys
from pathlib import Path
from moorage.cluster.layout import Layout
from moorage.cluster.supervision.probes import Patience
from moorage.cluster.supervision.supervisor import AlreadyRunningError, Part
from moorage.cluster.supervision.supervisor import PortTakenError, Supervisor
named = zip(sys.argv[2::2], sys.argv[3::2])
parts = [
    Part(name, name, (sys.executable, "-c", code), beats=name.startswith("beating"),
         listens_on="port 1 (--port)" if name.startswith("listening") else "",
         longest_restart_s=0.5 if name.startswith("eager") else 30)
    for name, code in named
]
start_s = float(os.environ.get("START_S", "120"))
patience = Patience(period_s=0.2, answer_s=0.2, deadline_s=1.0, start_s=start_s)
try:
    Supervisor(Layout(Path(sys.argv[1])), parts, lambda s: print(s, flush=True), patience).run()
except AlreadyRunningError as error:
    print(error, flush=True)
    sys.exit(3)
except PortTakenError as error:
    print(error, flush=True)
    sys.exit(4)
"""


class Run:
    """A supervisor in a process of its own, with what it reports."""

    def __init__(self, root: Path, parts: Mapping[str, str], program: str, start_s: float) -> None:
        arguments = [text for item in parts.items() for text in item]
        self.layout = Layout(root)
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, str(root), *arguments],
            env={**os.environ, "START_S": str(start_s)},
            stdout=subprocess.PIPE,
            text=True,
        )

    def until(self, text: str) -> str:
        assert self.process.stdout is not None
        seen = []
        for line in self.process.stdout:
            seen.append(line)
            if text in line:
                return line
        raise AssertionError(f"{text!r} was never reported: {seen}")

    def state(self) -> dict[str, dict[str, object]]:
        parts: dict[str, dict[str, object]] = json.loads(self.layout.state.read_text())["parts"]
        return parts


@contextlib.contextmanager
def running(root: Path, program: str = RUN, *, start_s: float = 120, **parts: str) -> Iterator[Run]:
    run = Run(root, parts, program, start_s)
    try:
        yield run
    finally:
        run.process.terminate()
        run.process.wait(30)
        assert run.process.stdout is not None
        run.process.stdout.close()


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return
        if state == "Z":
            return
        os.sched_yield()
    raise AssertionError(f"process {pid} is still there")


def test_it_says_when_each_part_and_the_cluster_are_ready(tmp_path: Path) -> None:
    with running(tmp_path, one=STAYS, two=STAYS) as run:
        run.until("cluster ready")
        assert {name: part["state"] for name, part in run.state().items()} == {
            "one": "ready",
            "two": "ready",
        }
        assert running_pid(run.layout) == run.process.pid
    assert running_pid(run.layout) is None
    assert not run.layout.state.exists()


def test_a_part_that_dies_is_started_again(tmp_path: Path) -> None:
    with running(tmp_path, one=STAYS) as run:
        run.until("cluster ready")
        pid = run.state()["one"]["pid"]
        assert isinstance(pid, int)
        os.kill(pid, signal.SIGKILL)
        assert "signal SIGKILL" in run.until("ended")
        run.until("one ready")
        assert run.state()["one"]["restarts"] == 1


def test_a_part_that_keeps_failing_is_started_later_and_later(tmp_path: Path) -> None:
    with running(tmp_path, bad="import sys; print('why', file=sys.stderr); sys.exit(7)") as run:
        assert "exit status 7" in run.until("again in 1 s")
        run.until("again in 2 s")
        assert "why" in run.layout.log("bad").read_text()


def test_a_port_that_another_program_has_ends_the_start(tmp_path: Path) -> None:
    with running(tmp_path, one=STAYS, listening="raise SystemExit(76)") as run:
        assert "again in 0.5 s" in run.until("listening ended (exit status 76)")
        assert run.until("--port") == (
            "listening cannot listen on port 1 (--port): another program does; stop it, or choose "
            "another port with the option\n"
        )
        assert run.process.wait(30) == 4
        assert running_pid(run.layout) is None


def test_a_port_that_is_taken_from_a_part_that_was_ready_is_waited_for(tmp_path: Path) -> None:
    was = str(tmp_path / "was")
    once = f"import os; os.path.exists({was!r}) and os._exit(76); open({was!r}, 'w');"
    with running(tmp_path, listening=once + READY + "os._exit(0)") as run:
        run.until("listening ready")
        for _ in range(2):
            run.until("ended (exit status 76)")


def test_killing_the_supervisor_by_force_ends_its_parts(tmp_path: Path) -> None:
    with running(tmp_path, one=STAYS) as run:
        run.until("cluster ready")
        pid = run.state()["one"]["pid"]
        assert isinstance(pid, int)
        run.process.kill()
        wait_until_gone(pid)


def test_one_data_directory_has_one_supervisor(tmp_path: Path) -> None:
    with running(tmp_path, one=STAYS) as first:
        first.until("cluster ready")
        second = Run(tmp_path, {"one": STAYS}, RUN, 120)
        assert f"supervisor process {first.process.pid}" in second.until("already runs")
        assert second.process.wait(10) == 3
        assert second.process.stdout is not None
        second.process.stdout.close()


def test_a_part_that_ignores_the_signal_is_ended_by_force(tmp_path: Path) -> None:
    stubborn = "import signal; signal.signal(15, signal.SIG_IGN);" + STAYS
    quick = RUN.replace(
        "from moorage.cluster.supervision.supervisor import",
        "import moorage.cluster.supervision.supervisor as s; s._STOP_S = 0.2\n"
        "from moorage.cluster.supervision.supervisor import",
    )
    with running(tmp_path, quick, one=stubborn) as run:
        run.until("cluster ready")
        pid = run.state()["one"]["pid"]
        assert isinstance(pid, int)
    wait_until_gone(pid)


def test_a_program_that_cannot_be_started_is_tried_again_and_the_others_go_on(
    tmp_path: Path,
) -> None:
    broken = RUN.replace(
        "named = zip",
        "import moorage.cluster.supervision.supervisor as s\n"
        "whole = s.subprocess.Popen\n"
        "def half(argv, **more):\n"
        "    if 'no-memory' in argv[2]: raise OSError(12, 'Cannot allocate memory')\n"
        "    return whole(argv, **more)\n"
        "s.subprocess.Popen = half\n"
        "named = zip",
    )
    with running(tmp_path, broken, one=STAYS, two="no-memory") as run:
        assert "Cannot allocate memory" in run.until("two cannot be started")
        run.until("again in 2 s")
        assert run.state()["one"]["state"] == "ready"


def test_a_state_that_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    # As on a full disk: a directory is where the file would go.
    Layout(tmp_path).state.with_name(f".{Layout(tmp_path).state.name}.new").mkdir()
    with running(tmp_path, one=STAYS) as run:
        run.until("the state cannot be written")
        run.until("cluster ready")


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGUSR1])
def test_a_part_that_hangs_is_shown_and_started_again(
    tmp_path: Path, number: signal.Signals
) -> None:
    # Stopped, or with an event loop that something holds up.
    with running(tmp_path, beating=BEATS, one=STAYS) as run:
        run.until("cluster ready")
        pid = run.state()["beating"]["pid"]
        assert isinstance(pid, int)
        os.kill(pid, number)
        run.until("beating does not answer")
        assert run.state()["beating"]["state"] == "not answering"
        run.until("it is killed and started again")
        run.until("signal SIGKILL")
        run.until("beating ready")
        assert run.state()["beating"]["restarts"] == 1
        assert run.state()["one"]["restarts"] == 0
        wait_until_gone(pid)


def test_a_part_that_hangs_before_it_is_ready_is_started_again(tmp_path: Path) -> None:
    was = str(tmp_path / "was")
    once = f"import os, time; os.path.exists({was!r}) or open({was!r}, 'w') and time.sleep(600);"
    with running(tmp_path, start_s=3, stuck=once + STAYS) as run:
        assert "its log: " in run.until("stuck is not ready after 1 s")
        assert run.state()["stuck"]["state"] == "starting"
        assert "it is killed and started again" in run.until("stuck: not ready after 3 s")
        run.until("signal SIGKILL")
        run.until("cluster ready")
        assert run.state()["stuck"]["last_end"] == "killed: not ready after 3 s"


def test_each_start_that_takes_too_long_has_twice_the_time(tmp_path: Path) -> None:
    with running(tmp_path, start_s=0.5, eager="import time; time.sleep(600)") as run:
        # A half, one, two seconds, and whatever the machine adds.
        times = [run.until("killed and started again") for _ in range(3)]
    first, _, last = (int(line.partition("not ready after ")[2].split()[0]) for line in times)
    assert last >= max(first, 2)


def test_a_part_that_answers_again_in_time_goes_on(tmp_path: Path) -> None:
    with running(tmp_path, beating=BEATS) as run:
        run.until("cluster ready")
        pid = run.state()["beating"]["pid"]
        assert isinstance(pid, int)
        os.kill(pid, signal.SIGSTOP)
        run.until("beating does not answer")
        os.kill(pid, signal.SIGCONT)
        run.until("beating answers again")
        assert run.state()["beating"] == {**run.state()["beating"], "pid": pid, "state": "ready"}


def test_time_in_which_the_supervisor_is_stopped_counts_for_nothing(tmp_path: Path) -> None:
    with running(tmp_path, beating=BEATS) as run:
        run.until("cluster ready")
        pid = run.state()["beating"]["pid"]
        assert isinstance(pid, int)
        # As when a machine is frozen: both stand still, for longer than the part has.
        for process_id in (pid, run.process.pid):
            os.kill(process_id, signal.SIGSTOP)
        time.sleep(3.0)
        os.kill(run.process.pid, signal.SIGCONT)
        os.kill(pid, signal.SIGCONT)
        time.sleep(1.5)
        assert run.state()["beating"] == {
            **run.state()["beating"], "pid": pid, "state": "ready", "restarts": 0,
        }  # fmt: skip


def test_the_wait_before_a_restart_has_its_part_s_own_limit(tmp_path: Path) -> None:
    with running(tmp_path, eager="raise SystemExit(7)") as run:
        for _ in range(4):
            assert "again in 0." in run.until("again in")
