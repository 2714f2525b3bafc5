"""Volume binding: what ends the wait for a pod's volumes, and how it is reported."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import msgspec
import pytest

from moorage.api.persistent_volumes import PersistentVolume, PersistentVolumeClaim
from moorage.scheduler.volume_binding import VolumeBinder, VolumeBindingError
from moorage.scheduler.volume_checks import VolumePlan
from tests.api.claims.objects import HOSTNAME, a_claim, a_volume, claim_json
from tests.clocks import FakeClock, settle
from tests.scheduler.test_volume_checks import DONE, SELECTED

PREFIX = 'running PreBind plugin "VolumeBinding": binding volumes: '
CLAIM = a_claim(storage_class="late")
FREE = a_volume(storage_class="late")
GIVEN = a_volume(storage_class="late", claim=claim_json())


class Patches:
    """Answers each patch with the object that the test expects to be stored."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.sent: list[tuple[str, Any]] = []

    async def patch(self, resource: Any, name: str, patch: Any, namespace: str = "") -> Any:
        del resource, namespace
        self.sent.append((name, patch))
        return self.answers.pop(0)


class Bench:
    def __init__(self, plan: VolumePlan, *answers: Any) -> None:
        self.plan, self.clock, self.api = plan, FakeClock(), Patches(*answers)
        self.binder = VolumeBinder(cast("Any", self.api), self.clock, longest_wait_s=600.0)
        self.labels: Mapping[str, str] | None = {HOSTNAME: "n1"}
        self.is_wanted = True
        storage = self.binder.storage
        storage.reserve(plan.reserved, plan.selected, "n1")
        for volume, claim in plan.bindings:
            storage.set_volume(volume)
            storage.set_claim(claim)
        for claim in plan.provisions:
            storage.set_claim(claim)
        self.task = asyncio.ensure_future(
            self.binder.bind(plan, "n1", lambda: self.labels, lambda: self.is_wanted)
        )

    def show(self, obj: PersistentVolume | PersistentVolumeClaim) -> None:
        """Have the informers show an object."""
        if isinstance(obj, PersistentVolume):
            self.binder.storage.set_volume(obj)
            self.binder.notify(obj.metadata.name)
        else:
            self.binder.storage.set_claim(obj)
            self.binder.notify(f"default/{obj.metadata.name}")

    async def problem(self) -> str:
        with pytest.raises(VolumeBindingError) as caught:
            async with asyncio.timeout(5):
                await self.task
        assert self.binder.storage.selected_node(CLAIM) == ""
        assert self.binder.waiting == {}
        return str(caught.value)


def at(obj: Any, revision: str) -> Any:
    meta = msgspec.structs.replace(obj.metadata, resource_version=revision)
    return msgspec.structs.replace(obj, metadata=meta)


def done(volume: str = "pv", **more: Any) -> PersistentVolumeClaim:
    return a_claim(storage_class="late", volume=volume, phase="Bound", **more)


def binding() -> Bench:
    return Bench(VolumePlan(bindings=((at(FREE, "1"), CLAIM),)), at(GIVEN, "5"))


def provision() -> Bench:
    stored = at(a_claim(storage_class="late", annotations={SELECTED: "n1"}), "5")
    return Bench(VolumePlan(provisions=(at(CLAIM, "1"),)), stored)


async def test_a_given_volume_is_waited_for_until_its_claim_is_bound() -> None:
    bench = binding()
    await settle(20)
    # What our copy still has is from before our own write.
    assert not bench.task.done()
    bench.show(at(GIVEN, "5"))
    await settle(20)
    assert not bench.task.done()
    bench.show(done(annotations=DONE))
    assert await bench.task
    assert [name for name, _ in bench.api.sent] == ["pv"]


async def test_a_volume_that_is_freed_again_ends_the_wait() -> None:
    bench = binding()
    await settle(20)
    bench.show(at(FREE, "6"))
    assert await bench.problem() == f'{PREFIX}ClaimRef got reset for pv "pv"'


async def test_a_claim_or_volume_that_goes_ends_the_wait() -> None:
    bench = binding()
    await settle(20)
    bench.binder.storage.remove_volume("pv")
    bench.binder.notify("pv")
    problem = await bench.problem()
    assert problem == f'{PREFIX}failed to check binding: persistentvolume "pv" not found'
    bench = provision()
    await settle(20)
    bench.binder.storage.remove_claim("default/data")
    bench.binder.notify("default/data")
    assert "failed to check provisioning pvc" in await bench.problem()


async def test_a_volume_made_elsewhere_ends_the_wait() -> None:
    bench = provision()
    await settle(20)
    bench.show(a_volume(node="n2"))
    bench.show(at(done(annotations={**DONE, SELECTED: "n1"}), "7"))
    assert await bench.problem() == (
        f'{PREFIX}pv "pv" node affinity doesn\'t match node "n1": no matching NodeSelectorTerms'
    )


async def test_a_volume_made_here_ends_it_well() -> None:
    bench = provision()
    await settle(20)
    bench.show(at(done(annotations={**DONE, SELECTED: "n1"}), "7"))
    await settle(20)
    # Its volume is not in our copy yet.
    assert not bench.task.done()
    bench.show(a_volume(node="n1"))
    bench.binder.notify("default/data")
    assert await bench.task
    ((name, patch),) = bench.api.sent
    assert (name, patch["metadata"]["annotations"]) == ("data", {SELECTED: "n1"})


async def test_a_node_that_goes_ends_the_wait() -> None:
    bench = provision()
    bench.labels = None
    assert await bench.problem() == f'{PREFIX}failed to get node "n1"'


async def test_the_wait_has_an_end() -> None:
    bench = provision()
    await settle(20)
    bench.clock.advance(599)
    await settle(20)
    assert not bench.task.done()
    bench.clock.advance(2)
    assert await bench.problem() == f"{PREFIX}context deadline exceeded"


async def test_a_pod_that_is_gone_is_waited_for_no_more() -> None:
    bench = provision()
    await settle(20)
    bench.is_wanted = False
    bench.binder.notify("default/data")
    assert not await bench.task
    assert bench.binder.storage.selected_node(CLAIM) == ""
