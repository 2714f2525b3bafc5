"""How containers end: asked to, made to, out of memory, out of processes."""

from __future__ import annotations

import asyncio
import os
import time

import pytest

from moorage.linux.cgroups import current_cgroups
from moorage.wire.cri import pb
from tests.engine.streams.callers import spdy
from tests.engine.whole.engines import Caller, eventually, shell

pytestmark = [pytest.mark.runtime]

IGNORING = shell("trap '' TERM; echo up; while true; do sleep 0.1; done")
# Its first process needs no room for another once the bomb has gone off.
BOMB = "read go; sh -c 'while :; do sleep 999 & done'; exec sleep 1000"
OBEYING = shell("trap 'echo asked; exit 5' TERM; echo up; while true; do sleep 0.05; done")


async def test_a_container_that_handles_the_signal_ends_as_it_likes(caller: Caller) -> None:
    main = await caller.run(await caller.run_pod(), *OBEYING)
    await caller.wait_for_line(main, "up")
    await caller.stop(main, 20)
    # The answer comes once the end is on record.
    assert (await caller.status(main)).exit_code == 5
    assert await caller.log_of(main) == ["up", "asked"]


async def test_a_container_that_ignores_the_signal_is_killed_after_the_grace(
    caller: Caller,
) -> None:
    main = await caller.run(await caller.run_pod(), *IGNORING)
    await caller.wait_for_line(main, "up")
    began = time.monotonic()
    await caller.stop(main, 1)
    assert time.monotonic() - began >= 1
    assert (await caller.status(main)).exit_code == 137


async def test_no_grace_kills_at_once(caller: Caller) -> None:
    main = await caller.run(await caller.run_pod(), *OBEYING)
    await caller.wait_for_line(main, "up")
    await caller.stop(main, 0)
    assert (await caller.status(main)).exit_code == 137
    assert await caller.log_of(main) == ["up"]


async def test_a_second_stop_without_grace_kills_what_the_first_waits_for(caller: Caller) -> None:
    main = await caller.run(await caller.run_pod(), *IGNORING)
    await caller.wait_for_line(main, "up")
    first = asyncio.create_task(caller.stop(main, 600))
    await asyncio.sleep(0)
    await caller.stop(main, 0)
    await first


async def test_a_second_stop_does_not_send_the_signal_again(caller: Caller) -> None:
    counting = "n=0; trap 'n=$((n+1)); echo $n' TERM; echo up; while true; do sleep 0.05; done"
    main = await caller.run(await caller.run_pod(), *shell(counting))
    await caller.wait_for_line(main, "up")
    await asyncio.gather(caller.stop(main, 1), caller.stop(main, 1))
    assert await caller.log_of(main) == ["up", "1"]


async def test_the_stop_signal_is_the_containers_own(caller: Caller) -> None:
    script = "trap 'exit 9' USR1; trap 'exit 8' TERM; echo up; while true; do sleep 0.05; done"
    main = await caller.run(await caller.run_pod(), *shell(script), stop_signal=pb.SIGUSR1)
    await caller.wait_for_line(main, "up")
    await caller.stop(main, 10)
    status = await caller.status(main)
    assert (status.exit_code, status.stop_signal) == (9, pb.SIGUSR1)


async def test_stopping_what_does_not_run_changes_nothing(caller: Caller) -> None:
    pod = await caller.run_pod()
    created = await caller.create(pod, "true")
    await caller.stop(created, 5)
    assert (await caller.status(created)).state == pb.CONTAINER_CREATED
    ended = await caller.run(pod, "true", name="ended")
    before = await caller.ended(ended)
    await caller.stop(ended, 5)
    assert await caller.status(ended) == before


async def test_a_stopped_pod_has_no_address_and_takes_no_container(caller: Caller) -> None:
    pod = await caller.run_pod()
    main = await caller.run(pod, "sleep", "1000")
    await caller.stop_pod(pod)
    await caller.stop_pod(pod)
    status = await caller.pod_status(pod)
    assert (status.state, status.network.ip) == (pb.SANDBOX_NOTREADY, "")
    assert (await caller.status(main)).exit_code == 137


async def test_a_container_out_of_memory_says_so(caller: Caller) -> None:
    limits = pb.LinuxContainerResources(memory_limit_in_bytes=24 << 20)
    eat = shell("head -c 200m /dev/zero | tail -c 100m")
    main = await caller.run(await caller.run_pod(), *eat, resources=limits)
    status = await caller.ended(main)
    assert status.reason == "OOMKilled", status
    # The monitor leaves its mark where it works, which is not where the engine does.
    assert "oom" not in os.listdir(f"/proc/{caller.engine.pid}/cwd")


async def test_a_fork_bomb_stays_in_its_pod(caller: Caller) -> None:
    config = caller.pod_config()
    pod = await caller.run_sandbox(config)
    main = await caller.create(pod, *shell(BOMB), stdin=True)
    await caller.start(main)
    # What limits a pod's processes is its own cgroup, which its kubelet makes.
    group = CgroupFiles(config.linux.cgroup_parent)
    group.limit_processes(60)
    await _let_go(caller, main)
    await eventually(group.is_full, "a pod without room for processes")
    quiet = await caller.run(await caller.run_pod(), *shell("echo fine"))
    assert (await caller.ended(quiet)).exit_code == 0
    async with asyncio.timeout(30):
        await caller.stop(main)
        await caller.remove_pod(pod)


async def _let_go(caller: Caller, container: str) -> None:
    """Give a container a line of input."""
    request = pb.AttachRequest(container_id=container, stdin=True, stdout=True, stderr=True)
    url = (await caller.cri.call(caller.cri.runtime.Attach, request)).url
    async with spdy(url, "error", "stdin", "stdout", "stderr") as stream:
        await stream.write("stdin", b"go\n")
        await stream.end("stdin")


class CgroupFiles:
    """The files that limit a pod's processes, in either version."""

    def __init__(self, path: str) -> None:
        root = current_cgroups().mount_of("pids")
        if root is None:
            pytest.skip("this machine limits no numbers of processes")
        self._directory = root / path.lstrip("/")

    def limit_processes(self, most: int) -> None:
        (self._directory / "pids.max").write_text(str(most))

    async def is_full(self) -> bool:
        directory = self._directory
        limit = int((directory / "pids.max").read_text())
        return int((directory / "pids.current").read_text()) >= limit - 1


async def test_all_that_a_container_started_ends_with_it(caller: Caller) -> None:
    main = await caller.run(
        await caller.run_pod(),
        *shell("for i in 1 2 3; do /bin/busybox setsid sleep 86399 & done; wait"),
    )

    async def are_there() -> bool:
        return (await caller.exec(main, "ps")).stdout.count(b"root     sleep 86399") == 3

    await eventually(are_there, "three processes")
    await caller.stop(main)
    await caller.remove(main)
    assert not [line for line in caller.engine.processes() if "86399" in line]
