"""StopPodSandbox: containers, infra process, network; failures leave a retry."""

from __future__ import annotations

import asyncio

import pytest

from moorage.engine.errors import EngineError, FailedError
from moorage.engine.handlers.adapters import AdapterError
from moorage.engine.records import Stage
from moorage.engine.sandboxes.run import remove_pod_sandbox
from moorage.engine.sandboxes.stop import stop_pod_sandbox
from moorage.linux import pinned
from moorage.wire.cri import pb
from tests.cluster.images.programs import elf
from tests.engine.parts import Bench, bench, place

__all__ = ["bench", "place"]

POD = {"pid": pb.POD}


@pytest.fixture
def holding(bench: Bench) -> Bench:
    """An engine with a program that holds sandboxes."""
    busybox = bench.root / "bin/busybox"
    busybox.write_bytes(elf())
    busybox.chmod(0o755)
    return bench


def assert_nothing_left(bench: Bench) -> None:
    assert not list(bench.inventory.sandboxes)
    assert not bench.on_disk("sandboxes")
    assert not bench.mounts()
    assert not list(bench.paths.bundles.iterdir())
    assert not list(bench.paths.sandbox_files("x").parent.iterdir())
    assert not list(bench.paths.namespaces.iterdir())
    assert not bench.cgroup("/kubepods").exists()
    assert not bench.adapter.tasks


async def test_a_pod_whose_own_task_ends_is_stopped(holding: Bench) -> None:
    bench = holding
    sandbox = await bench.pod(is_on_host=False, **POD)
    container = await bench.running(sandbox, options=pb.NamespaceOption(pid=pb.POD))
    await bench.new_events()
    bench.adapter.end(sandbox.id, 1)
    await bench.until(lambda: not sandbox.record.is_ready)
    assert await bench.new_events() == [("STOPPED", container.id), ("STOPPED", sandbox.id)]
    assert bench.network_calls()[-1] == f"DEL {sandbox.id}"


async def test_a_stop_ends_the_containers_and_can_be_repeated(bench: Bench) -> None:
    sandbox, other = await bench.pod(), await bench.pod(name="other")
    first, second = await bench.running(sandbox), await bench.running(sandbox, name="second")
    untouched = await bench.running(other)
    await bench.new_events()
    await asyncio.gather(
        stop_pod_sandbox(bench.context, sandbox), stop_pod_sandbox(bench.context, sandbox)
    )
    events = await bench.new_events()
    assert sorted(events[:2]) == sorted([("STOPPED", first.id), ("STOPPED", second.id)])
    assert events[2:] == [("STOPPED", sandbox.id)]
    assert (first.record.stage, second.record.stage) == (Stage.EXITED, Stage.EXITED)
    assert untouched.is_running
    assert bench.on_disk("sandboxes")[sandbox.id]["is_ready"] is False
    await remove_pod_sandbox(bench.context, sandbox)
    assert (
        sorted(await bench.new_events())[:2]
        == sorted([("DELETED", first.id), ("DELETED", second.id), ("DELETED", sandbox.id)])[:2]
    )
    assert bench.on_disk("sandboxes").keys() == {other.id}
    assert bench.on_disk("containers").keys() == {untouched.id}


async def test_failed_task_deletion_leaves_the_pod_for_a_retry(
    holding: Bench,
) -> None:
    bench = holding
    sandbox = await bench.pod(is_on_host=False, **POD)
    bench.adapter.failures["delete"] = AdapterError("busy")
    expected = "failed to stop the sandbox of pod shop/web: busy"
    for action in (stop_pod_sandbox, remove_pod_sandbox):
        with pytest.raises(FailedError, match=expected):
            await action(bench.context, sandbox)
    assert sandbox.record.is_ready
    assert bench.on_disk("sandboxes").keys() == {sandbox.id}
    bench.adapter.failures.clear()
    await remove_pod_sandbox(bench.context, sandbox)
    assert_nothing_left(bench)


async def test_failed_network_release_leaves_the_pod_for_a_retry(
    bench: Bench,
) -> None:
    sandbox = await bench.pod(is_on_host=False)
    bench.break_network()
    with pytest.raises(EngineError, match="no room"):
        await stop_pod_sandbox(bench.context, sandbox)
    assert sandbox.record.is_ready
    assert pinned.is_pinned(bench.paths.namespaces / sandbox.id / "net")
    bench.break_network(is_broken=False)
    await remove_pod_sandbox(bench.context, sandbox)
    assert_nothing_left(bench)
