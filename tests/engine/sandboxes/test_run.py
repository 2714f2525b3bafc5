"""RunPodSandbox on real directories with a fake runtime: records, namespaces, cleanup."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from moorage.engine.errors import EngineError, FailedError, InvalidError, PreconditionError
from moorage.engine.handlers.adapters import AdapterError
from moorage.engine.handlers.availability import Verdict
from moorage.engine.handlers.templates import Catalogue
from moorage.engine.sandboxes.run import remove_pod_sandbox, run_pod_sandbox
from moorage.engine.sandboxes.stop import stop_pod_sandbox
from moorage.wire.cri import pb
from tests.clocks import START_NS
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
    sandbox = await run_pod_sandbox(bench.context, pod_config(), "runc")
    assert await bench.new_events() == [("CREATED", sandbox.id), ("STARTED", sandbox.id)]
    assert list(bench.inventory.sandboxes) == [sandbox]
    record = sandbox.record
    assert (record.handler, record.definition.name) == ("runc", "runc")
    assert record.program == bench.root / "bin/runc"
    assert record.features.recursive_read_only_mounts
    assert (record.created_at_ns, record.task_pid) == (START_NS, 0)
    assert (record.is_complete, record.is_ready, record.cni_result) == (True, True, None)
    assert bench.on_disk("sandboxes").keys() == {sandbox.id}
    files = bench.paths.sandbox_files(sandbox.id)
    assert (files / "hostname").read_text() == f"{os.uname().nodename}\n"
    assert not bench.network_calls()
    assert not bench.adapter.calls
    assert not (bench.paths.namespaces / sandbox.id).exists()
    assert bench.cgroup(PARENT).is_dir()
    await remove_pod_sandbox(bench.context, sandbox)
    assert_nothing_left(bench)


async def test_such_a_pod_can_have_shared_memory_of_its_own(bench: Bench) -> None:
    sandbox = await bench.pod(ipc=pb.POD)
    assert bench.mounts() == {f"n/{sandbox.id}/ipc", f"s/{sandbox.id}/shm"}
    await remove_pod_sandbox(bench.context, sandbox)
    assert_nothing_left(bench)


async def test_a_pod_has_an_address_and_namespaces(bench: Bench) -> None:
    sandbox = await bench.pod(is_on_host=False)
    attachment = sandbox.record.cni_result
    assert attachment is not None
    assert attachment.addresses == (ADDRESS,)
    assert bench.network_calls() == [f"ADD {sandbox.id}"]
    kinds = {f"n/{sandbox.id}/{kind}" for kind in ("net", "ipc", "uts")}
    assert bench.mounts() == {*kinds, f"s/{sandbox.id}/shm"}
    files = bench.paths.sandbox_files(sandbox.id)
    assert (files / "hostname").read_text() == "web\n"
    assert f"{ADDRESS}\tweb\n" in (files / "hosts").read_text()
    await stop_pod_sandbox(bench.context, sandbox)
    assert bench.network_calls() == [f"ADD {sandbox.id}", f"DEL {sandbox.id}"]
    assert not bench.mounts()
    assert not sandbox.record.is_ready
    assert files.is_dir()
    await remove_pod_sandbox(bench.context, sandbox)
    assert_nothing_left(bench)
    assert len(bench.network_calls()) == 2


@pytest.mark.parametrize("field", ["name", "namespace", "uid"])
async def test_a_pod_without_an_identity_is_refused(bench: Bench, field: str) -> None:
    config = pod_config()
    setattr(config.metadata, field, "")
    with pytest.raises(InvalidError, match="metadata with a name, a namespace and a uid"):
        await run_pod_sandbox(bench.context, config, "")
    assert_nothing_left(bench)
    assert not await bench.new_events()


async def test_a_handler_that_there_is_not_is_named_with_those_there_are(bench: Bench) -> None:
    with pytest.raises(FailedError, match=r'no runtime for "kata" is configured.*handlers runc'):
        await run_pod_sandbox(bench.context, pod_config(), "kata")
    bench.catalogue[0] = Catalogue()
    with pytest.raises(FailedError, match=r'no runtime for "" is configured.*handlers none'):
        await bench.pod()
    assert_nothing_left(bench)


OCI = 'adapter = "oci"\nbinary = "runc"\n'


async def test_unavailable_handler_is_rejected_with_the_reason(bench: Bench) -> None:
    bench.offer(OCI, verdict=Verdict("it is broken", "repair it"))
    with pytest.raises(FailedError, match=r'"runc" is not available: it is broken \(repair it\)'):
        await run_pod_sandbox(bench.context, pod_config(), "runc")
    bench.offer(OCI, has_program=False)
    with pytest.raises(FailedError, match='handler "runc" has no program'):
        await run_pod_sandbox(bench.context, pod_config(), "runc")
    bench.offer(OCI)
    (bench.root / "bin/runc").chmod(0o777)
    with pytest.raises(FailedError, match=r'refusing to run runtime handler "runc": .*bin/runc'):
        await run_pod_sandbox(bench.context, pod_config(), "runc")
    assert_nothing_left(bench)


async def test_name_is_reserved_until_the_pod_is_removed(bench: Bench) -> None:
    held = await bench.pod()
    with pytest.raises(PreconditionError, match=held.id):
        await bench.pod()
    await stop_pod_sandbox(bench.context, held)
    with pytest.raises(PreconditionError, match=held.id):
        await bench.pod()
    await remove_pod_sandbox(bench.context, held)
    await bench.pod()


async def test_failed_network_undoes_the_pod(bench: Bench) -> None:
    bench.break_network()
    with pytest.raises(EngineError, match="no room"):
        await bench.pod(is_on_host=False)
    assert_nothing_left(bench)
    (bench.root / "net.d/10-n.conflist").unlink()
    with pytest.raises(FailedError, match="no network for sandbox"):
        await bench.pod(is_on_host=False)
    assert_nothing_left(bench)
    assert not await bench.new_events()


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
    await stop_pod_sandbox(bench.context, sandbox)
    verbs = [(call[0], call[1]) for call in bench.adapter.calls]
    assert verbs.index(("kill", container.id)) < verbs.index(("delete", sandbox.id))
    assert verbs.index(("delete", container.id)) < verbs.index(("delete", sandbox.id))
    assert sandbox.record.task_pid == 0
    await remove_pod_sandbox(bench.context, sandbox)
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
    assert not await bench.new_events()


async def test_without_a_program_that_holds_it_there_is_no_such_pod(bench: Bench) -> None:
    with pytest.raises(FailedError, match=r"no program for .* infra process.*busybox-static"):
        await bench.pod(is_on_host=False, **POD)
    assert_nothing_left(bench)
