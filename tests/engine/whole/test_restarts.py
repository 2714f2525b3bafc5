"""Kills of the engine and of what works for it: containers, logs and codes outlive them all."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from moorage.wire.cri import CriClient, CriError, pb
from tests.engine.whole.engines import Caller, RunningEngine, an_engine, eventually, shell

pytestmark = [pytest.mark.runtime]

ASKED = "trap 'echo said; exit %d' USR1; echo up; while true; do sleep 0.05; done"
SLEEP = ("sleep", "1000")
# Its `create` never comes back, unless it is killed; everything else is runc's.
_HANGING = """
case "$*" in *" create "*) echo $$ >"$(dirname "$0")/hanging.pid"; exec sleep 3600;; esac
exec runc "$@"
"""


@pytest.fixture(scope="module")
def engine(archive: Path) -> Iterator[RunningEngine]:
    """An engine that makes nothing in advance, so that what is left is a pod's."""
    with an_engine(archive, spares=0) as engine:
        yield engine


@pytest.fixture
async def caller(engine: RunningEngine) -> AsyncIterator[Caller]:
    """Calls to the engine; at the end of a test nothing is left of what it made."""
    async with CriClient(engine.endpoint) as cri:
        caller = Caller(engine, cri)
        try:
            yield caller
        finally:
            await caller.remove_all()
    assert not engine.leftovers()


async def test_everything_is_as_it_was_after_a_kill(caller: Caller) -> None:
    pod = await caller.run_pod()
    shared = await caller.run_sandbox(caller.pod_config(pid=pb.POD))
    counting = "i=0; while true; do echo $i; i=$((i+1)); usleep 20000; done"
    running = await caller.run(pod, *shell(counting), name="running")
    ended = await caller.run(pod, *shell("exit 3"), name="ended")
    await caller.ended(ended)
    created = await caller.create(pod, *shell("echo late; exit 6"), name="created")
    in_shared = await caller.run(shared, *SLEEP, pid=pb.POD)
    stopped = await caller.run_pod()
    await caller.stop_pod(stopped)
    before = {
        container_id: await caller.status(container_id)
        for container_id in (running, ended, created, in_shared)
    }
    pods = {
        sandbox_id: await caller.pod_status(sandbox_id) for sandbox_id in (pod, shared, stopped)
    }
    await caller.restart()
    assert {container_id: await caller.status(container_id) for container_id in before} == before
    assert {sandbox_id: await caller.pod_status(sandbox_id) for sandbox_id in pods} == pods
    answer = await caller.exec(running, *shell("echo in; exit 5"))
    assert (answer.stdout, answer.exit_code) == (b"in\n", 5)
    await caller.start(created)
    assert (await caller.ended(created)).exit_code == 6
    await caller.stop(running)
    lines = await caller.log_of(running)
    assert lines == [str(number) for number in range(len(lines))]
    assert (await caller.status(running)).exit_code == 137
    with pytest.raises(CriError, match="reserved for"):
        await caller.create(pod, name="ended")


async def test_exit_without_an_engine_keeps_its_code(caller: Caller, engine: RunningEngine) -> None:
    pod = await caller.run_pod()
    containers = [await caller.run(pod, *shell(ASKED % code), name=f"c{code}") for code in (0, 9)]
    for id_ in containers:
        await caller.wait_for_line(id_, "up")
    killed = await caller.run(pod, "sleep", "1234", name="killed")
    pids = [(await caller.info(container))["pid"] for container in (*containers, killed)]
    engine.kill()
    os.kill(pids[2], signal.SIGKILL)
    for pid in pids[:2]:
        os.kill(pid, signal.SIGUSR1)
    await caller.start_engine()
    codes = [(await caller.ended(container)).exit_code for container in (*containers, killed)]
    assert codes == [0, 9, 137]
    assert [await caller.log_of(container) for container in containers] == [
        ["up", "said"],
        ["up", "said"],
    ]
    assert (await caller.status(killed)).finished_at >= (await caller.status(killed)).started_at


async def test_out_of_memory_is_known_after_a_kill(caller: Caller) -> None:
    limits = pb.LinuxContainerResources(memory_limit_in_bytes=24 << 20)
    eat = shell("sleep 0.6; head -c 200m /dev/zero | tail -c 100m")
    main = await caller.run(await caller.run_pod(), *eat, resources=limits)
    await caller.restart()
    assert (await caller.ended(main)).reason == "OOMKilled"


@pytest.mark.parametrize("is_engine_there", [True, False])
async def test_a_container_ends_with_its_monitor(
    caller: Caller, engine: RunningEngine, is_engine_there: bool
) -> None:
    pod = await caller.run_pod()
    main = await caller.run(pod, "sleep", "4321")
    other = await caller.run(pod, *SLEEP, name="other")
    monitor = _monitor(engine, main)
    if is_engine_there:
        os.kill(monitor, signal.SIGKILL)
    else:
        engine.kill()
        os.kill(monitor, signal.SIGKILL)
        await caller.start_engine()
    assert (await caller.ended(main, 10)).exit_code == 137

    async def is_gone() -> bool:
        return not any("4321" in line for line in engine.processes())

    await eventually(is_gone, "the end of the container's process", 5)
    assert (await caller.status(other)).state == pb.CONTAINER_RUNNING
    again = await caller.run(pod, *SLEEP, attempt=1)
    assert (await caller.exec(again, "true")).exit_code == 0


async def test_the_sandbox_ends_with_what_holds_its_processes(caller: Caller) -> None:
    pod = await caller.run_sandbox(caller.pod_config(pid=pb.POD))
    main = await caller.run(pod, *SLEEP, pid=pb.POD)
    request = pb.PodSandboxStatusRequest(pod_sandbox_id=pod, verbose=True)
    info = (await caller.cri.call(caller.cri.runtime.PodSandboxStatus, request)).info["info"]
    os.kill(int(info.partition('"pid":')[2].partition(",")[0]), signal.SIGKILL)

    async def is_down() -> bool:
        return (await caller.pod_status(pod)).state == pb.SANDBOX_NOTREADY

    await eventually(is_down, "a sandbox that is not ready", 10)
    assert (await caller.status(main)).exit_code == 137


async def test_a_runtime_killed_while_it_creates_fails_the_start(
    caller: Caller, engine: RunningEngine
) -> None:
    pod, main, starting = await _hanging_start(caller)
    os.kill(_hanging_pid(engine), signal.SIGKILL)
    with pytest.raises(CriError):
        await starting
    status = await caller.status(main)
    assert (status.exit_code, status.reason) == (128, "StartError")
    await caller.remove_pod(pod)


async def test_a_kill_while_a_runtime_creates_leaves_an_ended_container(
    caller: Caller,
) -> None:
    pod, main, starting = await _hanging_start(caller)
    await caller.restart()
    with pytest.raises(CriError):
        await starting
    status = await caller.status(main)
    assert (status.state, status.exit_code, status.reason) == (pb.CONTAINER_EXITED, 255, "Unknown")
    await caller.remove_pod(pod)


async def test_a_kill_in_a_burst_of_starts_leaves_whole_pods_only(
    caller: Caller, engine: RunningEngine
) -> None:
    chance = random.Random(1)
    for _ in range(2):
        pods: dict[str, str] = {}
        burst = [asyncio.create_task(_start_pod(caller, pods)) for _ in range(8)]
        await asyncio.sleep(chance.uniform(0.05, 0.5))
        await caller.restart()
        await asyncio.gather(*burst, return_exceptions=True)
        listed = await caller.pods()
        # A pod that was reported to a client is listed.
        assert set(pods) <= set(listed)
        for container in (await caller.containers()).values():
            assert container.pod_sandbox_id in listed
            status = await caller.status(container.id)
            if status.state == pb.CONTAINER_RUNNING:
                assert (await caller.exec(container.id, "true")).exit_code == 0
            elif status.state == pb.CONTAINER_CREATED:
                await caller.start(container.id)
            else:
                assert (status.exit_code, status.reason) in ((255, "Unknown"), (128, "StartError"))
        started = [pod for pod in pods.values() if pod]
        states = {(await caller.status(container_id)).state for container_id in started}
        assert states <= {pb.CONTAINER_RUNNING}
        await caller.remove_all()
        assert not engine.leftovers()


async def _start_pod(caller: Caller, pods: dict[str, str]) -> None:
    """Start a pod; under its id, the container once it is said to run."""
    pod = await caller.run_pod()
    pods[pod] = ""
    pods[pod] = await caller.run(pod, *SLEEP)


async def _hanging_start(caller: Caller) -> tuple[str, str, asyncio.Task[None]]:
    """A container that is being started by a runtime that does not come back."""
    engine = caller.engine
    pid_file = engine.root / "bin/hanging.pid"
    pid_file.unlink(missing_ok=True)
    if not (engine.handlers / "hanging.toml").exists():
        engine.define("hanging", engine.program("fake_hanging", _HANGING))

    made: list[str] = []

    async def is_made() -> bool:
        try:
            made.append(await caller.run_pod("hanging"))
        except CriError:
            # Its program has not been asked yet.
            return False
        return True

    await eventually(is_made, "a pod of the hanging handler", 5)
    main = await caller.create(made[0], *SLEEP)
    starting = asyncio.create_task(caller.start(main))

    async def is_hanging() -> bool:
        return pid_file.exists() and bool(pid_file.read_text().strip())

    await eventually(is_hanging, "the runtime's create", 5)
    return made[0], main, starting


def _hanging_pid(engine: RunningEngine) -> int:
    return int((engine.root / "bin/hanging.pid").read_text())


def _monitor(engine: RunningEngine, container: str) -> int:
    return int((engine.run / "b" / container / "monitor").read_text())


async def test_engine_starts_with_half_written_files_of_an_earlier_one(
    caller: Caller, engine: RunningEngine
) -> None:
    half_made, whole = await caller.run_pod(), await caller.run_pod()
    engine.kill()
    record = engine.data / "sandboxes" / f"{half_made}.json"
    content = json.loads(record.read_text())
    record.write_text(json.dumps({**content, "is_made": False}))
    cgroups = engine.run / "s" / half_made / "cgroups"
    cgroups.write_text(f"\n{cgroups.read_text()}\n")
    (engine.data / "sandboxes" / f"{'0' * 64}.new").write_text("{")
    (engine.run / "b" / ("1" * 64)).mkdir()
    await caller.start_engine()
    assert set(await caller.pods()) == {whole}
