"""Container exits: records, termination reasons, OOM kills, another engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage.engine.cgroups.usage import UsageReader
from moorage.engine.containers.lifecycle import start_container
from moorage.engine.handlers.adapters import Exit
from moorage.engine.handlers.definition import CgroupDriver
from moorage.engine.inventory import Sandbox
from moorage.engine.messages import container_status
from moorage.engine.records import Stage
from moorage.linux.cgroups import Cgroups, Layout
from tests.clocks import START_NS, settle
from tests.engine.fakes import FINISHED_NS
from tests.engine.parts import PARENT, Bench, bench, make_bench, place

__all__ = ["bench", "place"]

CREATED = ["create", "start"]


@pytest.mark.parametrize(
    ("code", "is_out_of_memory", "reason"),
    [(0, False, "Completed"), (3, False, "Error"), (137, False, "Error"), (1, True, "OOMKilled")],
)
async def test_an_end_is_on_record_and_the_runtime_forgets(
    bench: Bench, code: int, is_out_of_memory: bool, reason: str
) -> None:
    container = await bench.running(await bench.pod())
    await bench.new_events()
    bench.end(container, code, is_out_of_memory=is_out_of_memory)
    await container.exited.wait()
    assert await bench.new_events() == [("STOPPED", container.id)]
    record = container.record
    assert (record.stage, record.reason, record.message) == (Stage.EXITED, reason, "")
    assert record.exit == Exit(code, FINISHED_NS, is_out_of_memory)
    assert bench.adapter.calls_of(container.id) == [*CREATED, "delete"]
    assert not container.is_running
    status = container_status(container)
    assert (status.exit_code, status.finished_at) == (code, FINISHED_NS)


async def test_no_container_ends_before_it_started(bench: Bench) -> None:
    container = await bench.created(await bench.pod())
    bench.clock.advance(60)
    await start_container(bench.context, container)
    await settle()
    bench.end(container, 0)
    await container.exited.wait()
    assert container.record.exit == Exit(0, START_NS + 60_000_000_000)


@pytest.mark.parametrize(
    ("code", "where", "needs_sandbox", "reason"),
    [
        (137, "container", False, "OOMKilled"),
        (137, "container", True, "OOMKilled"),
        (143, "container", False, "Error"),
        (137, "sandbox", False, "Error"),
        (137, "sandbox", True, "OOMKilled"),
    ],
)
async def test_a_kill_by_the_kernel_is_found_in_the_cgroups(
    bench: Bench, code: int, where: str, needs_sandbox: bool, reason: str
) -> None:
    sandbox = await bench.pod()
    container = await bench.running(sandbox)
    bench.adapter.needs_sandbox = needs_sandbox
    its_id = container.id if where == "container" else sandbox.id
    cgroup = bench.cgroup(f"{PARENT}/{its_id}")
    cgroup.mkdir(parents=True)
    (cgroup / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
    bench.end(container, code)
    await container.exited.wait()
    assert container.record.reason == reason
    assert container.cgroup.path == f"{PARENT}/{container.id}"


def _count(cgroup: Path, kills: int) -> None:
    """Have both versions count."""
    cgroup.mkdir(parents=True, exist_ok=True)
    text = f"oom_kill_disable 0\nunder_oom 0\noom_kill {kills}\n"
    (cgroup / "memory.oom_control").write_text(text)
    (cgroup / "memory.events").write_text(f"low 0\noom_kill {kills}\n")


@pytest.fixture
def version_2(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bench's cgroups as version 2 has them."""
    root = bench.cgroup("/")
    cgroups = Cgroups(Layout.V2, unified=root, v2=("memory",), hierarchies=(root,))
    monkeypatch.setattr(bench.context.cgroups, "_reader", UsageReader(cgroups))


async def test_kills_of_a_container_beside_it_are_not_this_ones_with_version_1(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """systemd has removed the scope of one; of the other the count is still there."""
    monkeypatch.setattr(Sandbox, "cgroup_driver", CgroupDriver.SYSTEMD)
    _count(bench.cgroup("/kubepods.slice/kubepods-pod1.slice"), 0)
    sandbox = await bench.pod(parent="kubepods-pod1.slice")
    stopped = await bench.running(sandbox, name="stopped")
    greedy = await bench.running(sandbox, name="greedy")
    _count(bench.cgroup(greedy.cgroup.path), 1)
    bench.end(stopped, 137)
    await stopped.exited.wait()
    bench.end(greedy, 137)
    await greedy.exited.wait()
    assert (greedy.record.reason, stopped.record.reason) == ("OOMKilled", "Error")


@pytest.mark.usefixtures("version_2")
async def test_a_kill_by_the_kernel_is_found_though_systemd_removed_the_scope(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Sandbox, "cgroup_driver", CgroupDriver.SYSTEMD)
    pod = bench.cgroup("/kubepods.slice/kubepods-pod1.slice")
    _count(pod, 2)
    sandbox = await bench.pod(parent="kubepods-pod1.slice")
    greedy = await bench.running(sandbox, name="greedy")
    stopped = await bench.running(sandbox, name="stopped")
    _count(pod, 3)
    bench.end(greedy, 137)
    await greedy.exited.wait()
    # The count is that of the other container, and stays.
    bench.end(stopped, 137)
    await stopped.exited.wait()
    assert (greedy.record.reason, stopped.record.reason) == ("OOMKilled", "Error")


@pytest.mark.usefixtures("version_2")
async def test_kills_in_other_pods_of_a_shared_parent_are_not_this_ones(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Sandbox, "cgroup_driver", CgroupDriver.SYSTEMD)
    shared = bench.cgroup("/system.slice")
    _count(shared, 2)
    sandbox = await bench.pod(parent="")
    stopped = await bench.running(sandbox)
    _count(shared, 3)
    bench.end(stopped, 137)
    await stopped.exited.wait()
    assert stopped.record.reason == "Error"


async def test_another_engine_finds_the_records_as_they_were_left(
    bench: Bench, place: Path
) -> None:
    sandbox = await bench.pod()
    container = await bench.running(sandbox)
    ended = await bench.running(sandbox, name="ended")
    bench.end(ended, 4)
    await ended.exited.wait()
    async with make_bench(place, bench.adapter) as again:
        taken = again.inventory.containers.find(container.id)
        assert taken.record == container.record
        assert taken.config == container.config
        recovered = again.inventory.containers.find(ended.id)
        assert recovered.record == ended.record
        assert recovered.exited.is_set()
        again.end(taken, 6)
        await taken.exited.wait()
        assert taken.record.exit == Exit(6, FINISHED_NS)


SHIM = 'adapter = "shim"\nbinary = "runc"\n[options]\nruntime_type = "io.containerd.kata.v2"\n'


@pytest.mark.parametrize(
    ("code", "where", "kills", "reason"),
    [
        (137, "/kata_overhead/{id}", 1, "OOMKilled"),
        (255, "/kata_overhead/{id}", 1, "OOMKilled"),
        (255, f"{PARENT}/kata_{{id}}", 1, "OOMKilled"),
        (255, f"{PARENT}/kata_{{id}}", 0, "Error"),
        (255, "/kata_overhead/another", 1, "Error"),
        (1, f"{PARENT}/kata_{{id}}", 1, "Error"),
    ],
)
async def test_a_guest_that_the_kernel_kills_takes_its_containers_along(
    bench: Bench, code: int, where: str, kills: int, reason: str
) -> None:
    bench.offer(SHIM)
    sandbox = await bench.pod()
    container = await bench.running(sandbox)
    _count(bench.cgroup(where.format(id=sandbox.id)), kills)
    bench.end(container, code)
    await container.exited.wait()
    assert container.record.reason == reason
