"""A sandbox's life on real directories and a fake runtime: records, calls, events, undoing."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from moorage.cri import pb
from moorage.engine.errors import EngineError, FailedError, InvalidError, PreconditionError
from moorage.engine.inventory import Sandbox
from moorage.engine.records import Stage
from moorage.handlers.adapters import AdapterError
from moorage.handlers.availability import Verdict
from moorage.handlers.catalogue import Catalogue
from moorage.linux import pinned
from tests.clocks import START_NS, settle
from tests.cluster.images.programs import elf
from tests.engine.fakes import FIRST_PID
from tests.engine.parts import ADDRESS, PARENT, Bench, bench, make_bench, place, pod_config

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


async def test_a_pod_on_the_machines_network_needs_no_plugin(bench: Bench) -> None:
    sandbox = await bench.sandboxes.run(pod_config(), "runc")
    assert await bench.told() == [("CREATED", sandbox.id), ("STARTED", sandbox.id)]
    assert list(bench.inventory.sandboxes) == [sandbox]
    record = sandbox.record
    assert (record.handler, record.definition.name) == ("runc", "runc")
    assert record.program == bench.root / "bin/runc"
    assert record.features.recursive_read_only_mounts
    assert (record.created_at_ns, record.task_pid) == (START_NS, 0)
    assert (record.is_made, record.is_ready, record.attachment) == (True, True, None)
    assert bench.on_disk("sandboxes").keys() == {sandbox.id}
    files = bench.paths.sandbox_files(sandbox.id)
    assert (files / "hostname").read_text() == f"{os.uname().nodename}\n"
    assert not bench.network_calls()
    assert not bench.adapter.calls
    assert not (bench.paths.namespaces / sandbox.id).exists()
    assert bench.cgroup(PARENT).is_dir()
    await bench.sandboxes.remove(sandbox)
    assert_nothing_left(bench)


async def test_such_a_pod_can_have_shared_memory_of_its_own(bench: Bench) -> None:
    sandbox = await bench.pod(ipc=pb.POD)
    assert bench.mounts() == {f"n/{sandbox.id}/ipc", f"s/{sandbox.id}/shm"}
    await bench.sandboxes.remove(sandbox)
    assert_nothing_left(bench)


async def test_a_pod_has_an_address_and_namespaces(bench: Bench) -> None:
    sandbox = await bench.pod(is_on_host=False)
    attachment = sandbox.record.attachment
    assert attachment is not None
    assert attachment.addresses == (ADDRESS,)
    assert bench.network_calls() == [f"ADD {sandbox.id}"]
    kinds = {f"n/{sandbox.id}/{kind}" for kind in ("net", "ipc", "uts")}
    assert bench.mounts() == {*kinds, f"s/{sandbox.id}/shm"}
    files = bench.paths.sandbox_files(sandbox.id)
    assert (files / "hostname").read_text() == "web\n"
    assert f"{ADDRESS}\tweb\n" in (files / "hosts").read_text()
    await bench.sandboxes.stop(sandbox)
    assert bench.network_calls() == [f"ADD {sandbox.id}", f"DEL {sandbox.id}"]
    assert not bench.mounts()
    assert not sandbox.record.is_ready
    assert files.is_dir()
    await bench.sandboxes.remove(sandbox)
    assert_nothing_left(bench)
    assert len(bench.network_calls()) == 2


@pytest.mark.parametrize("field", ["name", "namespace", "uid"])
async def test_a_pod_without_an_identity_is_refused(bench: Bench, field: str) -> None:
    config = pod_config()
    setattr(config.metadata, field, "")
    with pytest.raises(InvalidError, match="metadata with a name, a namespace and a uid"):
        await bench.sandboxes.run(config, "")
    assert_nothing_left(bench)
    assert not await bench.told()


async def test_a_handler_that_there_is_not_is_named_with_those_there_are(bench: Bench) -> None:
    with pytest.raises(FailedError, match=r'no runtime for "kata" is configured.*handlers runc'):
        await bench.sandboxes.run(pod_config(), "kata")
    bench.catalogue[0] = Catalogue()
    with pytest.raises(FailedError, match=r'no runtime for "" is configured.*handlers none'):
        await bench.pod()
    assert_nothing_left(bench)


OCI = 'adapter = "oci"\nbinary = "runc"\n'


async def test_a_handler_that_cannot_be_used_says_why(bench: Bench) -> None:
    bench.offer(OCI, verdict=Verdict("it is broken", "mend it"))
    with pytest.raises(FailedError, match=r'"runc" is not available: it is broken \(mend it\)'):
        await bench.sandboxes.run(pod_config(), "runc")
    bench.offer(OCI, has_program=False)
    with pytest.raises(FailedError, match='handler "runc" has no program'):
        await bench.sandboxes.run(pod_config(), "runc")
    bench.offer(OCI)
    (bench.root / "bin/runc").chmod(0o777)
    with pytest.raises(FailedError, match=r'handler "runc" is not run: .*bin/runc'):
        await bench.sandboxes.run(pod_config(), "runc")
    assert_nothing_left(bench)


async def test_a_name_is_held_while_there_is_something_of_the_pod(bench: Bench) -> None:
    held = await bench.pod()
    with pytest.raises(PreconditionError, match=held.id):
        await bench.pod()
    await bench.sandboxes.stop(held)
    with pytest.raises(PreconditionError, match=held.id):
        await bench.pod()
    await bench.sandboxes.remove(held)
    await bench.pod()


async def test_a_network_that_cannot_be_had_undoes_the_pod(bench: Bench) -> None:
    bench.break_network()
    with pytest.raises(EngineError, match="no room"):
        await bench.pod(is_on_host=False)
    assert_nothing_left(bench)
    (bench.root / "net.d/10-n.conflist").unlink()
    with pytest.raises(FailedError, match="no network for sandbox"):
        await bench.pod(is_on_host=False)
    assert_nothing_left(bench)
    assert not await bench.told()


async def test_namespaces_the_handler_cannot_give_are_refused_first(bench: Bench) -> None:
    bench.offer('adapter = "runsc"\nbinary = "runsc"\n')
    options = pb.UserNamespace(
        mode=pb.POD,
        uids=[pb.IDMapping(container_id=0, host_id=100_000, length=65_536)],
        gids=[pb.IDMapping(container_id=0, host_id=100_000, length=65_536)],
    )
    with pytest.raises(EngineError, match="user namespace"):
        await bench.pod(is_on_host=False, userns_options=options)
    assert_nothing_left(bench)
    assert not bench.network_calls()


async def test_what_is_being_made_is_on_disk_as_such(holding: Bench, place: Path) -> None:
    bench = holding
    bench.adapter.gates["create"] = asyncio.Event()
    running = asyncio.create_task(bench.pod(is_on_host=False, **POD))
    await bench.until(lambda: bool(bench.adapter.calls))
    ((sandbox_id, record),) = bench.on_disk("sandboxes").items()
    assert record["is_made"] is False
    assert not list(bench.inventory.sandboxes)
    # What an engine that is killed now leaves is undone by the next.
    async with make_bench(place, bench.adapter) as again:
        assert_nothing_left(again)
        assert bench.adapter.calls_of(sandbox_id) == ["create", "delete"]
        assert bench.network_calls() == [f"ADD {sandbox_id}", f"DEL {sandbox_id}"]
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_cancelled_pod_is_undone(holding: Bench) -> None:
    bench = holding
    bench.adapter.gates["start"] = asyncio.Event()
    running = asyncio.create_task(bench.pod(is_on_host=False, **POD))
    await bench.until(lambda: len(bench.adapter.calls) == 2)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert_nothing_left(bench)
    assert [call[0] for call in bench.adapter.calls] == ["create", "start", "delete"]


async def test_a_process_namespace_is_held_by_a_task_of_the_sandbox(holding: Bench) -> None:
    bench = holding
    sandbox = await bench.pod(is_on_host=False, **POD)
    assert sandbox.record.task_pid == FIRST_PID
    assert bench.on_disk("sandboxes")[sandbox.id]["task_pid"] == FIRST_PID
    assert bench.adapter.calls_of(sandbox.id) == ["create", "start"]
    task = bench.adapter.tasks[sandbox.id].task
    assert task.is_sandbox
    config = task.bundle / "config.json"
    assert os.stat(config).st_mode & 0o777 == 0o600
    document = json.loads(config.read_text())
    assert document["process"]["args"][0] == "/init"
    assert document["root"]["path"] == str(bench.context.infra.rootfs)
    container = await bench.running(sandbox, options=pb.NamespaceOption(pid=pb.POD))
    spec = json.loads((bench.paths.bundle(container.id) / "config.json").read_text())
    joined = {"type": "pid", "path": f"/proc/{FIRST_PID}/ns/pid"}
    assert joined in spec["linux"]["namespaces"]
    await bench.sandboxes.stop(sandbox)
    verbs = [(call[0], call[1]) for call in bench.adapter.calls]
    assert verbs.index(("kill", container.id)) < verbs.index(("delete", sandbox.id))
    assert verbs.index(("delete", container.id)) < verbs.index(("delete", sandbox.id))
    assert sandbox.record.task_pid == 0
    await bench.sandboxes.remove(sandbox)
    assert_nothing_left(bench)


async def test_a_runtime_that_needs_a_sandbox_gets_one(holding: Bench) -> None:
    holding.adapter.needs_sandbox = True
    sandbox = await holding.pod(is_on_host=False)
    assert holding.adapter.calls_of(sandbox.id) == ["create", "start"]
    assert holding.adapter.tasks[sandbox.id].is_started


@pytest.mark.parametrize("call", ["create", "start"])
async def test_a_task_that_fails_undoes_the_pod(holding: Bench, call: str) -> None:
    bench = holding
    bench.adapter.failures[call] = AdapterError("no kvm")
    with pytest.raises(FailedError) as raised:
        await bench.pod(is_on_host=False, **POD)
    assert str(raised.value) == "failed to start the sandbox of pod shop/web: no kvm"
    assert_nothing_left(bench)
    assert bench.adapter.calls[-1][0] == "delete"
    assert not await bench.told()


async def test_without_a_program_that_holds_it_there_is_no_such_pod(bench: Bench) -> None:
    with pytest.raises(FailedError, match=r"nothing can hold the sandbox.*busybox-static"):
        await bench.pod(is_on_host=False, **POD)
    assert_nothing_left(bench)


async def test_a_pod_whose_own_task_ends_is_stopped(holding: Bench) -> None:
    bench = holding
    sandbox = await bench.pod(is_on_host=False, **POD)
    container = await bench.running(sandbox, options=pb.NamespaceOption(pid=pb.POD))
    await bench.told()
    bench.adapter.end(sandbox.id, 1)
    await bench.until(lambda: not sandbox.record.is_ready)
    assert await bench.told() == [("STOPPED", container.id), ("STOPPED", sandbox.id)]
    assert bench.network_calls()[-1] == f"DEL {sandbox.id}"


async def test_a_stop_ends_the_containers_and_can_be_repeated(bench: Bench) -> None:
    sandbox, other = await bench.pod(), await bench.pod(name="other")
    first, second = await bench.running(sandbox), await bench.running(sandbox, name="second")
    untouched = await bench.running(other)
    await bench.told()
    await asyncio.gather(bench.sandboxes.stop(sandbox), bench.sandboxes.stop(sandbox))
    events = await bench.told()
    assert sorted(events[:2]) == sorted([("STOPPED", first.id), ("STOPPED", second.id)])
    assert events[2:] == [("STOPPED", sandbox.id)]
    assert (first.record.stage, second.record.stage) == (Stage.EXITED, Stage.EXITED)
    assert untouched.is_running
    assert bench.on_disk("sandboxes")[sandbox.id]["is_ready"] is False
    await bench.sandboxes.remove(sandbox)
    assert (
        sorted(await bench.told())[:2]
        == sorted([("DELETED", first.id), ("DELETED", second.id), ("DELETED", sandbox.id)])[:2]
    )
    assert bench.on_disk("sandboxes").keys() == {other.id}
    assert bench.on_disk("containers").keys() == {untouched.id}


async def test_a_removal_stops_first(bench: Bench) -> None:
    sandbox = await bench.pod(is_on_host=False)
    container = await bench.running(sandbox)
    await bench.told()
    await bench.sandboxes.remove(sandbox)
    assert await bench.told() == [
        ("STOPPED", container.id),
        ("STOPPED", sandbox.id),
        ("DELETED", container.id),
        ("DELETED", sandbox.id),
    ]
    assert_nothing_left(bench)
    assert not bench.on_disk("containers")


async def test_a_task_that_cannot_be_ended_leaves_the_pod_for_the_next_try(
    holding: Bench,
) -> None:
    bench = holding
    sandbox = await bench.pod(is_on_host=False, **POD)
    bench.adapter.failures["delete"] = AdapterError("busy")
    expected = "failed to end the sandbox of pod shop/web: busy"
    for action in (bench.sandboxes.stop, bench.sandboxes.remove):
        with pytest.raises(FailedError, match=expected):
            await action(sandbox)
    assert sandbox.record.is_ready
    assert bench.on_disk("sandboxes").keys() == {sandbox.id}
    bench.adapter.failures.clear()
    await bench.sandboxes.remove(sandbox)
    assert_nothing_left(bench)


async def test_a_network_that_cannot_be_given_back_leaves_the_pod_for_the_next_try(
    bench: Bench,
) -> None:
    sandbox = await bench.pod(is_on_host=False)
    bench.break_network()
    with pytest.raises(EngineError, match="no room"):
        await bench.sandboxes.stop(sandbox)
    assert sandbox.record.is_ready
    assert pinned.is_pinned(bench.paths.namespaces / sandbox.id / "net")
    bench.break_network(is_broken=False)
    await bench.sandboxes.remove(sandbox)
    assert_nothing_left(bench)


async def test_the_engines_own_cgroup_goes_with_the_last_pod_in_it(bench: Bench) -> None:
    own = bench.cgroup("/moorage")
    first, second = await bench.pod(parent=""), await bench.pod(name="second", parent="")
    named = await bench.pod(name="named")
    own.mkdir()
    await bench.sandboxes.remove(named)
    await bench.sandboxes.remove(first)
    assert own.is_dir()
    await bench.sandboxes.remove(second)
    assert not own.exists()


async def test_a_cgroup_that_another_made_stays(bench: Bench) -> None:
    made_outside = bench.cgroup("/kubepods")
    for controller in ("cpu", "memory", "pids"):
        (bench.root / "cgroup" / controller / "kubepods").mkdir()
    sandbox = await bench.pod()
    assert bench.cgroup(PARENT).is_dir()
    await bench.sandboxes.remove(sandbox)
    assert made_outside.is_dir()
    assert not bench.cgroup(PARENT).exists()


async def _restarted(bench: Bench, place: Path, sandbox: Sandbox) -> Sandbox:
    async with make_bench(place, bench.adapter) as again:
        taken = again.inventory.sandboxes.find(sandbox.id)
        assert taken.config == sandbox.config
        if taken.record.task_pid:
            # It is watched as before.
            again.adapter.end(sandbox.id, 1)
            await again.until(lambda: not taken.record.is_ready)
        return taken


async def test_another_engine_goes_on_with_what_is_whole(holding: Bench, place: Path) -> None:
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
        assert {each.name for each in paths.bundles.iterdir()} == {container.id}
        assert {each.name for each in paths.sandbox_files("x").parent.iterdir()} == {sandbox.id}
        assert [each.name for each in paths.scratch.iterdir()] == ["kept"]
        assert again.inventory.containers.find(container.id).record.stage is Stage.CREATED


async def test_another_engine_ends_what_was_half_started_or_lost_its_files(
    bench: Bench, place: Path
) -> None:
    sandbox = await bench.pod()
    half, lost = await bench.created(sandbox), await bench.created(sandbox, name="lost")
    bench.adapter.gates["start"] = asyncio.Event()
    starting = asyncio.create_task(bench.containers.start(half))
    await settle()
    await bench.context.images.unmount_rootfs(lost.id, bench.paths.bundle(lost.id) / "rootfs")
    async with make_bench(place, bench.adapter) as again:
        for container in (half, lost):
            record = again.inventory.containers.find(container.id).record
            assert (record.stage, record.reason) == (Stage.EXITED, "Unknown")
            assert record.exit is not None
            assert (record.exit.code, record.exit.finished_at_ns) == (255, START_NS)
            assert record.message == "its end was not seen by any engine"
        assert not bench.adapter.tasks
        assert bench.adapter.calls_of(half.id) == ["create", "start", "delete"]
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting


async def test_what_cannot_be_taken_over_hinders_nothing_else(holding: Bench, place: Path) -> None:
    bench = holding
    sandbox = await bench.pod(name="t", **POD)
    half = await bench.created(sandbox, options=pb.NamespaceOption(pid=pb.POD))
    bench.adapter.gates["start"] = asyncio.Event()
    starting = asyncio.create_task(bench.containers.start(half))
    await settle()
    bench.adapter.tasks[sandbox.id].ended.set()
    del bench.adapter.tasks[sandbox.id]
    bench.adapter.failures["delete"] = AdapterError("busy")
    async with make_bench(place, bench.adapter) as again:
        assert again.inventory.sandboxes.find(sandbox.id).record.is_ready
        ended = again.inventory.containers.find(half.id)
        assert ended.record.reason == "Unknown"
        bench.adapter.failures.clear()
        await again.sandboxes.remove(again.inventory.sandboxes.find(sandbox.id))
        assert_nothing_left(again)
    starting.cancel()
    with pytest.raises((asyncio.CancelledError, EngineError)):
        await starting
