"""Pods under a kernel of their own, whose parts the host does not see."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

from moorage.cri import pb
from tests.engine.whole.engines import Caller, RunningEngine, eventually, shell

pytestmark = [
    pytest.mark.runtime,
    pytest.mark.skipif(shutil.which("runsc") is None, reason="runsc is not installed"),
]

SLEEP = ("sleep", "5123")


async def test_containers_that_share_processes_see_the_pods_first_one(caller: Caller) -> None:
    config = caller.pod_config(pid=pb.POD)
    pod = await caller.run_sandbox(config, "gvisor")
    await caller.run(pod, *SLEEP, pid=pb.POD)
    other = await caller.run(pod, *shell("sleep 6000"), name="other", pid=pb.POD)
    listed = (await caller.exec(other, "ps")).stdout
    assert b"5123" in listed
    first = (await caller.exec(other, "cat", "/proc/1/cmdline")).stdout
    assert b"sleep" not in first


async def test_a_pod_stopped_with_its_containers_leaves_nothing_and_no_complaint(
    caller: Caller, engine: RunningEngine
) -> None:
    pod = await caller.run_pod("gvisor")
    for name in ("one", "two", "three"):
        await caller.run(pod, *SLEEP, name=name)
    await caller.stop_pod(pod)
    await caller.remove_pod(pod)
    assert "work beside the calls failed" not in engine.told
    assert "cgroups" not in engine.leftovers()


async def test_containers_go_with_a_kernel_that_is_killed(
    caller: Caller, engine: RunningEngine
) -> None:
    pod = await caller.run_pod("gvisor")
    main = await caller.run(pod, *SLEEP)
    os.kill(_kernel_of(pod), signal.SIGKILL)
    await caller.ended(main)

    async def is_down() -> bool:
        return (await caller.pod_status(pod)).state == pb.SANDBOX_NOTREADY

    await eventually(is_down, "a pod without a kernel that is not ready")
    await caller.remove_pod(pod)
    assert "work beside the calls failed" not in engine.told


def _kernel_of(pod: str) -> int:
    """The process that is a pod's kernel: its command line names both."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if words[0] == b"runsc-sandbox" and pod.encode() in words:
            return int(folder.name)
    raise AssertionError(f"pod {pod} has no kernel")
