"""Recovery: what another engine does with the pods of an earlier one."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path

import pytest

from moorage.engine.containers.lifecycle import start_container
from moorage.engine.errors import EngineError
from moorage.engine.handlers.adapters import AdapterError
from moorage.engine.inventory import Sandbox
from moorage.engine.records import Stage
from moorage.engine.sandboxes.namespaces import remove_files
from moorage.engine.sandboxes.run import remove_pod_sandbox
from moorage.linux import pinned
from moorage.wire.cri import pb
from tests.clocks import START_NS, settle
from tests.cluster.images.programs import elf
from tests.engine.parts import Bench, bench, make_bench, place
from tests.linux.mounting import bind_and_mount_disk, shared_tree

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


async def _restarted(bench: Bench, place: Path, sandbox: Sandbox) -> Sandbox:
    async with make_bench(place, bench.adapter) as again:
        taken = again.inventory.sandboxes.find(sandbox.id)
        assert taken.config == sandbox.config
        if taken.record.task_pid:
            # It is watched as before.
            again.adapter.end(sandbox.id, 1)
            await again.until(lambda: not taken.record.is_ready)
        return taken


async def test_new_engine_recovers_complete_sandboxes(holding: Bench, place: Path) -> None:
    bench = holding
    plain, held = await bench.pod(is_on_host=False), await bench.pod(name="h", **POD)
    on_host = await bench.pod(name="host")
    async with make_bench(place, bench.adapter) as again:
        for sandbox in (plain, held, on_host):
            assert again.inventory.sandboxes.find(sandbox.id).record == sandbox.record
        assert ("is_alive", held.id) in bench.adapter.calls
    assert not (await _restarted(bench, place, held)).record.is_ready


async def test_another_engine_stops_what_has_lost_its_network_or_task(
    holding: Bench, place: Path
) -> None:
    bench = holding
    without_network = await bench.pod(is_on_host=False)
    without_task = await bench.pod(name="t", **POD)
    unasked = await bench.pod(name="u", **POD)
    pinned.release(bench.paths.namespaces / without_network.id)
    del bench.adapter.tasks[without_task.id]
    bench.adapter.failures["is_alive"] = AdapterError("cannot say")
    async with make_bench(place, bench.adapter) as again:
        for sandbox in (without_network, without_task, unasked):
            assert not again.inventory.sandboxes.find(sandbox.id).record.is_ready
        assert bench.network_calls()[-1] == f"DEL {without_network.id}"


@pytest.mark.parametrize("ipc", [pb.POD, pb.NODE])
async def test_after_a_reboot_no_sandbox_is_ready(
    bench: Bench, place: Path, ipc: pb.NamespaceMode.ValueType
) -> None:
    on_network = await bench.pod(name="n", is_on_host=False, ipc=ipc)
    on_host = await bench.pod(name="h", ipc=ipc)
    for sandbox in (on_network, on_host):
        pinned.release(bench.paths.namespaces / sandbox.id)
        remove_files(bench.paths.sandbox_files(sandbox.id))
    async with make_bench(place, bench.adapter) as again:
        for sandbox in (on_network, on_host):
            assert not again.inventory.sandboxes.find(sandbox.id).record.is_ready


async def test_another_engine_removes_what_belongs_to_nothing(bench: Bench, place: Path) -> None:
    sandbox = await bench.pod(is_on_host=False)
    container = await bench.created(sandbox)
    paths = bench.paths
    for stray in (paths.bundles / "stray", paths.sandbox_files("stray")):
        stray.mkdir()
        (stray / "file").touch()
    (paths.scratch / "left").touch()
    (paths.scratch / "kept").mkdir()
    before = bench.mounts()
    async with make_bench(place, bench.adapter) as again:
        assert again.mounts() == before
        assert {path.name for path in paths.bundles.iterdir()} == {container.id}
        assert {path.name for path in paths.sandbox_files("x").parent.iterdir()} == {sandbox.id}
        assert [path.name for path in paths.scratch.iterdir()] == ["kept"]
        assert again.inventory.containers.find(container.id).record.stage is Stage.CREATED


async def test_files_stay_of_an_incomplete_sandbox_that_cannot_be_removed(
    holding: Bench, place: Path
) -> None:
    bench = holding
    sandbox = await bench.pod(name="half", **POD)
    record = bench.paths.sandbox_records / f"{sandbox.id}.json"
    bench.inventory.delete_sandbox(sandbox)
    bench.inventory.save_incomplete(sandbox)
    assert record.exists()
    bench.adapter.failures["delete"] = AdapterError("busy")
    async with make_bench(place, bench.adapter) as again:
        assert not list(again.inventory.sandboxes)
        assert bench.paths.sandbox_files(sandbox.id).is_dir()
        assert bench.paths.bundle(sandbox.id).is_dir()
    bench.adapter.failures.clear()
    async with make_bench(place, bench.adapter) as again:
        assert not record.exists()
        assert not bench.paths.sandbox_files(sandbox.id).exists()
        assert not bench.paths.bundle(sandbox.id).exists()


async def test_the_hosts_mounts_in_a_leftover_outlive_it(bench: Bench, place: Path) -> None:
    host = place / "host"
    host.mkdir()
    with shared_tree(host):
        leftover = bench.paths.bundles / "leftover"
        disk = bind_and_mount_disk(host / "data", leftover / "rootfs")
        async with make_bench(place, bench.adapter):
            assert not leftover.exists()
        assert disk.is_mount()


async def test_another_engine_ends_what_was_half_started_or_lost_its_files(
    bench: Bench, place: Path
) -> None:
    sandbox = await bench.pod()
    half, lost = await bench.created(sandbox), await bench.created(sandbox, name="lost")
    bench.adapter.gates["start"] = asyncio.Event()
    starting = asyncio.create_task(start_container(bench.context, half))
    await settle()
    await bench.context.images.unmount_rootfs(lost.id, bench.paths.bundle(lost.id) / "rootfs")
    async with make_bench(place, bench.adapter) as again:
        for container in (half, lost):
            record = again.inventory.containers.find(container.id).record
            assert (record.stage, record.reason) == (Stage.EXITED, "Unknown")
            assert record.exit is not None
            assert (record.exit.code, record.exit.finished_at_ns) == (255, START_NS)
            assert record.message.startswith("exit status unknown: ")
        assert not bench.adapter.tasks
        assert bench.adapter.calls_of(half.id) == ["create", "start", "delete"]
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting


async def test_unrecoverable_container_does_not_block_the_others(
    holding: Bench, place: Path
) -> None:
    bench = holding
    sandbox = await bench.pod(name="t", **POD)
    half = await bench.created(sandbox, options=pb.NamespaceOption(pid=pb.POD))
    bench.adapter.gates["start"] = asyncio.Event()
    starting = asyncio.create_task(start_container(bench.context, half))
    await settle()
    bench.adapter.tasks[sandbox.id].ended.set()
    del bench.adapter.tasks[sandbox.id]
    bench.adapter.failures["delete"] = AdapterError("busy")
    async with make_bench(place, bench.adapter) as again:
        assert again.inventory.sandboxes.find(sandbox.id).record.is_ready
        ended = again.inventory.containers.find(half.id)
        assert ended.record.reason == "Unknown"
        bench.adapter.failures.clear()
        await remove_pod_sandbox(again.context, again.inventory.sandboxes.find(sandbox.id))
        assert_nothing_left(again)
    starting.cancel()
    with pytest.raises((asyncio.CancelledError, EngineError)):
        await starting


def _damage(path: Path, kind: str) -> None:
    """Make a record unreadable, as a disk fault or the record of a later version does."""
    record = json.loads(path.read_bytes())
    if kind == "not JSON":
        path.write_bytes(b"{")
    elif kind == "unknown field type":
        path.write_text(json.dumps(record | {"created_at_ns": "yesterday"}))
    else:
        path.write_text(json.dumps(record | {"config": base64.b64encode(b"\xff").decode()}))


@pytest.mark.parametrize("kind", ["not JSON", "unknown field type", "configuration"])
@pytest.mark.parametrize("records", ["sandboxes", "containers"])
async def test_unreadable_record_keeps_files_of_running_containers(
    bench: Bench, place: Path, kind: str, records: str
) -> None:
    sandbox, other = await bench.pod(is_on_host=False), await bench.pod(name="other")
    container, healthy = await bench.running(sandbox), await bench.running(other)
    damaged = {"sandboxes": sandbox.id, "containers": container.id}[records]
    file = bench.paths.data / records / f"{damaged}.json"
    _damage(file, kind)
    mounts = bench.mounts()
    async with make_bench(place, bench.adapter) as again:
        assert again.inventory.containers.find(healthy.id).is_running
        assert again.inventory.containers.get(container.id) is None
        assert again.mounts() == mounts
        assert (again.paths.bundles / container.id).is_dir()
        assert again.paths.sandbox_files(sandbox.id).is_dir()
        assert not [call for call in bench.network_calls() if call.startswith("DEL")]
        assert container.id in bench.adapter.tasks
        kept = {path.stem for path in (again.paths.data / "containers").iterdir()}
        assert kept == {container.id, healthy.id}
    # Without the record the files belong to nothing.
    file.unlink()
    async with make_bench(place, bench.adapter) as last:
        assert not (last.paths.bundles / container.id).exists()
        assert last.inventory.containers.find(healthy.id).is_running
