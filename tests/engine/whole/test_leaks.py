"""Pods made and killed at random points, under an engine that is killed too: nothing is left.

Twenty pods in `make test`; as many as MOORAGE_ENGINE_PODS says, with another seed each time, when
that is set.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
from pathlib import Path

import grpc
import pytest

from moorage.wire.cri import CriClient, CriError, pb
from tests.engine.whole.engines import Caller, RunningEngine, an_engine

_PODS = int(os.environ.get("MOORAGE_ENGINE_PODS", "20"))
_SEED = random.randrange(1 << 32) if "MOORAGE_ENGINE_PODS" in os.environ else 7
_AT_ONCE = 6
_PODS_A_LIFE = 10
_MOST_LEFT = 60

pytestmark = [pytest.mark.runtime, pytest.mark.slow, pytest.mark.timeout(120 + 2 * _PODS)]


async def test_nothing_is_left_of_pods_ended_at_random_points(archive: Path) -> None:
    print(f"seed {_SEED}")
    chance = random.Random(_SEED)
    with an_engine(archive, spares=3) as engine:
        left = _PODS
        while left > 0:
            count = min(left, _PODS_A_LIFE)
            left -= count
            await _one_life(engine, chance, count)
            engine.start()
            await _remove_too_many(engine)
        await _remove_too_many(engine, most=0)
        engine.stop()
        engine.drain()
        assert not engine.leftovers(), f"seed {_SEED}"
        assert "background task failed" not in engine.log_text
        assert "call failed call=" not in engine.log_text


async def _remove_too_many(engine: RunningEngine, most: int = _MOST_LEFT) -> None:
    """End what earlier lives left, before the network has no address any more."""
    async with CriClient(engine.endpoint) as cri:
        caller = Caller(engine, cri)
        if len(await caller.pods()) > most:
            await caller.remove_all()
            assert not await caller.containers()


async def _one_life(engine: RunningEngine, chance: random.Random, count: int) -> None:
    """Pods come and go under one engine, until it is killed in the middle of it."""
    async with CriClient(engine.endpoint) as cri:
        caller = Caller(engine, cri)
        waiting = list(range(count))
        workers = [
            asyncio.create_task(_make_and_end(caller, waiting, random.Random(chance.random())))
            for _ in range(_AT_ONCE)
        ]
        await asyncio.wait(workers, timeout=chance.uniform(0.2, 0.12 * count))
        engine.kill()
        await asyncio.gather(*workers)


async def _make_and_end(caller: Caller, waiting: list[int], chance: random.Random) -> None:
    while waiting:
        waiting.pop()
        try:
            await _pod(caller, chance)
        except CriError as error:
            if error.code is grpc.StatusCode.UNAVAILABLE:
                return
            # A step that a random kill made impossible, which the next one shows in full.
            if "kill" not in str(error) and not _is_expected(error):
                raise


async def _pod(caller: Caller, chance: random.Random) -> None:
    """A pod that is left, or ended by one of several ways, after a random step of its life."""
    handler = chance.choice(("runc", "runc", "runc", "crun", "crun", "crun", "gvisor"))
    if shutil.which({"gvisor": "runsc"}.get(handler, handler)) is None:
        handler = "runc"
    kind = chance.choice((pb.CONTAINER, pb.CONTAINER, pb.POD))
    work = asyncio.create_task(_life(caller, handler, kind, chance))
    if chance.random() < 0.3:
        # A caller that goes away in the middle of a call.
        await asyncio.wait((work,), timeout=chance.uniform(0.0, 0.3))
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        return
    await work


async def _life(
    caller: Caller, handler: str, kind: pb.NamespaceMode.ValueType, chance: random.Random
) -> None:
    pod = await caller.run_sandbox(caller.pod_config(pid=kind), handler)
    containers = []
    for number in range(chance.randrange(3)):
        main = await caller.create(pod, "sleep", "1000", name=f"c{number}", pid=kind)
        containers.append(main)
        if chance.random() < 0.8:
            await caller.start(main)
    ending = chance.choice(("left", "stopped", "removed", "removed", "containers", "at once"))
    if ending == "containers":
        for container in containers:
            await caller.stop(container, chance.choice((0, 1)))
            await caller.remove(container)
    if ending == "stopped":
        await caller.stop_pod(pod)
    if ending in ("removed", "containers"):
        await caller.remove_pod(pod)
    if ending == "at once":
        await asyncio.gather(caller.stop_pod(pod), caller.remove_pod(pod), caller.remove_pod(pod))


def _is_expected(error: CriError) -> bool:
    return error.is_not_found
