"""Leader election: of candidates on one lease, one leads at a time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from moorage.api.coordination import Lease, LeaseSpec
from moorage.api.errors import UnavailableError
from moorage.api.meta import ObjectMeta
from moorage.wire.client.leader_election import (
    LeaderElector,
    LeadershipLostError,
    LeaseTiming,
    Observed,
    next_spec,
)
from moorage.wire.client.resources import LEASES
from moorage.wire.client.rest import UnreachableError
from tests.clocks import FakeClock, settle
from tests.controllers.memory import MemoryClient


def lease(holder: str, renewed: str = "1", transitions: int = 0) -> Lease:
    spec = LeaseSpec(holder_identity=holder, renew_time=renewed, lease_transitions=transitions)
    return Lease(metadata=ObjectMeta(name="l", uid="u"), spec=spec)


def test_a_lease_is_free_once_it_has_not_changed_for_its_duration_here() -> None:
    seen = Observed().seen(lease("other"), 100.0)
    assert seen.free_in_s("me", 100.0, 15.0) == 15.0
    assert seen.seen(lease("other"), 110.0).free_in_s("me", 110.0, 15.0) == 5.0
    # Whatever its times say: the other's clock may be years off.
    assert seen.seen(lease("other", "1999"), 110.0).free_in_s("me", 110.0, 15.0) == 15.0
    assert seen.free_in_s("other", 100.0, 15.0) == 0.0
    assert Observed().seen(lease(""), 1.0).free_in_s("me", 1.0, 15.0) == 0.0
    assert Observed().free_in_s("me", 1.0, 15.0) == 0.0


def test_a_new_holder_is_a_transition_and_a_renewal_is_not() -> None:
    first = next_spec(None, "me", "t1", 15.0)
    assert (first.acquire_time, first.renew_time, first.lease_transitions) == ("t1", "t1", 0)
    again = next_spec(Lease(spec=first), "me", "t2", 15.0)
    assert (again.acquire_time, again.renew_time, again.lease_transitions) == ("t1", "t2", 0)
    other = next_spec(Lease(spec=again), "you", "t3", 15.0)
    assert (other.holder_identity, other.acquire_time, other.lease_transitions) == ("you", "t3", 1)
    most = next_spec(lease("you", transitions=2**31 - 1), "me", "t4", 15.0)
    assert most.lease_transitions == 2**31 - 1


class Candidate:
    """A candidate on one clock and server, which notes when it leads."""

    def __init__(self, client: Any, clock: FakeClock, name: str) -> None:
        self.is_leading = False
        self.elector = LeaderElector(client, "ns", "l", name, clock, LeaseTiming())
        self.task = asyncio.create_task(self.elector.run(self._lead))

    async def _lead(self) -> None:
        self.is_leading = True
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.is_leading = False

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def kill(self) -> None:
        """End it without what it does at its end."""
        self.elector._release = _nothing  # type: ignore[method-assign]
        await self.stop()


async def _nothing() -> None:
    return


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def client(clock: FakeClock) -> Any:
    return MemoryClient(clock)


async def passing(clock: FakeClock, seconds: float) -> None:
    for _ in range(round(seconds / 0.5)):
        clock.advance(0.5)
        await settle(60)


async def test_one_of_two_leads_and_the_other_follows_when_it_stops(
    client: Any, clock: FakeClock
) -> None:
    first = Candidate(client, clock, "first")
    await settle(60)
    second = Candidate(client, clock, "second")
    await passing(clock, 60)
    assert (first.is_leading, second.is_leading) == (True, False)
    # Standing by costs no requests.
    gets = [one for one in client.requests if one.verb == "get"]
    assert len(gets) <= 2
    await first.stop()
    await settle(60)
    assert second.is_leading
    spec = client.find(LEASES, "l", "ns")["spec"]
    assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("second", 1)
    await second.stop()
    assert client.find(LEASES, "l", "ns")["spec"]["holderIdentity"] == ""


async def test_after_a_kill_another_leads_once_the_lease_has_expired(
    client: Any, clock: FakeClock
) -> None:
    first = Candidate(client, clock, "first")
    await settle(60)
    second = Candidate(client, clock, "second")
    await passing(clock, 31)
    await first.kill()
    await passing(clock, 12)
    assert not second.is_leading
    await passing(clock, 3.5)
    assert second.is_leading
    await second.stop()


async def test_a_leader_that_cannot_renew_stops_before_another_may_begin(
    client: Any, clock: FakeClock
) -> None:
    first = Candidate(client, clock, "first")
    await settle(60)
    assert first.is_leading
    failure = UnavailableError("away")
    client.failures += [("update", "leases", failure)] * 10
    await passing(clock, 9)
    assert first.is_leading
    await passing(clock, 2.5)
    assert not first.is_leading
    with pytest.raises(LeadershipLostError, match="not renewed within 10 s"):
        await first.task


async def test_a_leader_that_was_paused_writes_nothing_before_it_looks_at_its_lease(
    client: Any, clock: FakeClock
) -> None:
    first = Candidate(client, clock, "first")
    await passing(clock, 60)
    first.elector.check_lease()
    clock.advance(20)
    # Its other tasks run before the one that renews.
    with pytest.raises(UnreachableError, match="lease l was not renewed in time"):
        first.elector.check_lease()
    await settle(60)
    assert not first.is_leading
    with pytest.raises(LeadershipLostError):
        await first.task


async def test_a_leader_whose_lease_another_has_stops_at_once(
    client: Any, clock: FakeClock
) -> None:
    first = Candidate(client, clock, "first")
    await settle(60)
    client.put(LEASES, lease("thief"))
    stolen = client.find(LEASES, "l", "default")
    client.put(LEASES, {"metadata": {"name": "l", "namespace": "ns"}, "spec": stolen["spec"]})
    await passing(clock, 2.5)
    with pytest.raises(LeadershipLostError, match="held by thief"):
        await first.task
    assert client.find(LEASES, "l", "ns")["spec"]["holderIdentity"] == "thief"


async def test_what_the_work_raises_ends_the_leadership(client: Any, clock: FakeClock) -> None:
    async def fail() -> None:
        raise ValueError("broken")

    elector = LeaderElector(client, "ns", "l", "me", clock)
    with pytest.raises(ValueError, match="broken"):
        await elector.run(fail)
    assert client.find(LEASES, "l", "ns")["spec"]["holderIdentity"] == ""
