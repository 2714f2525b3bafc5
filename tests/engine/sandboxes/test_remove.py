"""RemovePodSandbox: what it removes, and the cgroups that stay."""

from __future__ import annotations

from moorage.engine.sandboxes.run import remove_pod_sandbox
from moorage.wire.cri import pb
from tests.engine.parts import PARENT, Bench, bench, place

__all__ = ["bench", "place"]

POD = {"pid": pb.POD}


def assert_nothing_left(bench: Bench) -> None:
    assert not list(bench.inventory.sandboxes)
    assert not bench.on_disk("sandboxes")
    assert not bench.mounts()
    assert not list(bench.paths.bundles.iterdir())
    assert not list(bench.paths.sandbox_files("x").parent.iterdir())
    assert not list(bench.paths.namespaces.iterdir())
    assert not bench.cgroup("/kubepods").exists()
    assert not bench.adapter.tasks


async def test_a_removal_stops_first(bench: Bench) -> None:
    sandbox = await bench.pod(is_on_host=False)
    container = await bench.running(sandbox)
    await bench.new_events()
    await remove_pod_sandbox(bench.context, sandbox)
    assert await bench.new_events() == [
        ("STOPPED", container.id),
        ("STOPPED", sandbox.id),
        ("DELETED", container.id),
        ("DELETED", sandbox.id),
    ]
    assert_nothing_left(bench)
    assert not bench.on_disk("containers")


async def test_the_engines_own_cgroup_goes_with_the_last_pod_in_it(bench: Bench) -> None:
    own = bench.cgroup("/moorage")
    first, second = await bench.pod(parent=""), await bench.pod(name="second", parent="")
    named = await bench.pod(name="named")
    own.mkdir()
    await remove_pod_sandbox(bench.context, named)
    await remove_pod_sandbox(bench.context, first)
    assert own.is_dir()
    await remove_pod_sandbox(bench.context, second)
    assert not own.exists()


async def test_a_cgroup_that_another_made_stays(bench: Bench) -> None:
    made_outside = bench.cgroup("/kubepods")
    for controller in ("cpu", "memory", "pids"):
        (bench.root / "cgroup" / controller / "kubepods").mkdir()
    sandbox = await bench.pod()
    assert bench.cgroup(PARENT).is_dir()
    await remove_pod_sandbox(bench.context, sandbox)
    assert made_outside.is_dir()
    assert not bench.cgroup(PARENT).exists()
