"""Pods that name no cgroup share one of the engine's, which goes with the last of them."""

from __future__ import annotations

import asyncio

import pytest

from moorage.wire.cri import pb
from tests.engine.whole.engines import Caller

pytestmark = [pytest.mark.runtime]

_ROUNDS = 10


def unplaced(caller: Caller) -> pb.PodSandboxConfig:
    """A pod whose processes share a namespace, so that a process is made with it."""
    config = caller.pod_config(pid=pb.POD)
    config.linux.cgroup_parent = ""
    return config


async def test_a_pod_can_come_while_the_last_one_goes(caller: Caller) -> None:
    last = await caller.run_sandbox(unplaced(caller))
    for _ in range(_ROUNDS):
        _, last = await asyncio.gather(
            caller.remove_pod(last), caller.run_sandbox(unplaced(caller))
        )
    await caller.remove_pod(last)
