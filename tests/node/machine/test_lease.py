from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from moorage.api.coordination import Lease
from moorage.api.errors import ConflictError, NotFoundError, UnavailableError
from moorage.node.machine.lease import NodeLease
from moorage.wire.client.resources import LEASES
from tests.clocks import FakeClock, settle
from tests.node.objects import a_node


class FakeServer:
    """One lease, and how often it was renewed."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.renewals: list[str] = []
        self.failures: list[Exception] = []

    async def get(self, resource: Any, name: str, namespace: str) -> Lease:
        assert (resource, namespace) == (LEASES, "kube-node-lease")
        if self.lease is None:
            raise NotFoundError.of("leases", name)
        return msgspec.convert(self.lease, Lease)

    async def create(self, resource: Any, body: Any, namespace: str) -> Lease:
        assert (resource, namespace) == (LEASES, "kube-node-lease")
        return self._store(body)

    async def update(self, resource: Any, body: Any, name: str, namespace: str) -> Lease:
        assert (resource, namespace) == (LEASES, "kube-node-lease")
        if self.failures:
            raise self.failures.pop(0)
        if self.lease is None:
            raise NotFoundError.of("leases", name)
        self.renewals.append(body["spec"].renew_time)
        return self._store(body)

    def _store(self, body: Any) -> Lease:
        self.lease = msgspec.to_builtins(body)
        return msgspec.convert(self.lease, Lease)


class FakeNode:
    node = a_node(metadata={"name": "n1", "uid": "node-uid"})

    async def wait_registered(self) -> None:
        return


class Case:
    def __init__(self, *failures: Exception) -> None:
        self.server, self.clock = FakeServer(), FakeClock()
        self.server.failures = list(failures)
        server: Any = self.server
        node: Any = FakeNode()
        lease = NodeLease(server, node, self.clock, name="n1", duration_s=40)
        self.task = asyncio.ensure_future(lease.run())

    async def after(self, seconds: float) -> list[str]:
        await settle()
        self.clock.advance(seconds)
        await settle()
        return [renewal[17:19] for renewal in self.server.renewals]

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.wait((self.task,))


async def test_it_is_made_and_renewed_four_times_within_its_duration() -> None:
    case = Case()
    for _ in range(3):
        seconds = await case.after(10)
    assert seconds == ["00", "10", "20", "30"]
    assert case.server.lease is not None
    assert case.server.lease["spec"]["holderIdentity"] == "n1"
    assert case.server.lease["spec"]["leaseDurationSeconds"] == 40
    (owner,) = case.server.lease["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Node", "node-uid")
    await case.end()


@pytest.mark.parametrize(
    "failure", [UnavailableError("busy"), ConflictError("changed"), NotFoundError.of("leases", "n")]
)
async def test_a_failure_is_soon_made_good(failure: Exception) -> None:
    case = Case(failure)
    assert await case.after(0) == []
    assert await case.after(1) == ["01"]
    await case.end()


async def test_a_lease_that_was_deleted_is_made_again() -> None:
    case = Case()
    await case.after(0)
    case.server.lease = None
    await case.after(10)
    await case.after(1)
    assert case.server.lease is not None
    await case.end()


async def test_what_is_written_of_a_lease() -> None:
    case = Case()
    await case.after(0)
    assert case.server.lease is not None
    meta = case.server.lease["metadata"]
    assert (meta["name"], meta["namespace"]) == ("n1", "kube-node-lease")
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "node-uid"}
    assert meta["ownerReferences"] == [owner]
    assert case.server.lease["spec"]["renewTime"] == "2026-01-01T00:00:00.000000Z"
    await case.end()
