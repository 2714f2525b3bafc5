"""Node lease: the node's inexpensive heartbeat, renewed every few seconds.

Source: KEP-589, kubelet `nodelease` (a quarter of the duration between renewals).
"""

from __future__ import annotations

from moorage.api.clock import Clock, format_micro_time
from moorage.api.coordination import Lease, LeaseSpec
from moorage.api.errors import AlreadyExistsError, ConflictError, NotFoundError, StatusError
from moorage.api.logs import Log
from moorage.node.machine.node_object import NodeObject
from moorage.wire.client.backoff import Backoff
from moorage.wire.client.resources import LEASES
from moorage.wire.client.rest import Client, UnreachableError

log = Log(__name__)

NAMESPACE = "kube-node-lease"
_RENEWALS = 4


class NodeLease:
    """Renews the lease of this node. `run()` blocks until cancelled."""

    def __init__(
        self, client: Client, node: NodeObject, clock: Clock, *, name: str, duration_s: int
    ) -> None:
        self._client = client
        self._node = node
        self._clock = clock
        self._name = name
        self._duration_s = duration_s
        self._held: Lease | None = None

    async def run(self) -> None:
        """Renew the node's lease each period; blocks until cancelled. Failures are logged."""
        backoff = Backoff(first_s=0.2, limit_s=7.0)
        await self._node.wait_registered()
        while True:
            try:
                await self._renew()
                backoff.reset()
                pause_s = self._duration_s / _RENEWALS
            except (NotFoundError, ConflictError, AlreadyExistsError):
                # Deleted, or written by another client: read it again before the next try.
                self._held = None
                pause_s = backoff.next_s()
            except (StatusError, UnreachableError) as error:
                pause_s = backoff.next_s()
                log.warning("lease not renewed", error=error, retry_s=round(pause_s, 1))
            await self._clock.sleep(pause_s)

    async def _renew(self) -> None:
        spec = LeaseSpec(
            holder_identity=self._name,
            lease_duration_seconds=self._duration_s,
            renew_time=format_micro_time(self._clock.now()),
        )
        if self._held is None:
            self._held = await self._read_or_create(spec)
        body = {
            "metadata": {
                "name": self._name,
                "namespace": NAMESPACE,
                "resourceVersion": self._held.metadata.resource_version,
                "ownerReferences": self._owner(),
            },
            "spec": spec,
        }
        self._held = await self._client.update(LEASES, body, self._name, NAMESPACE)

    async def _read_or_create(self, spec: LeaseSpec) -> Lease:
        try:
            return await self._client.get(LEASES, self._name, NAMESPACE)
        except NotFoundError:
            body = {
                "metadata": {
                    "name": self._name,
                    "namespace": NAMESPACE,
                    "ownerReferences": self._owner(),
                },
                "spec": spec,
            }
            return await self._client.create(LEASES, body, NAMESPACE)

    def _owner(self) -> list[dict[str, str]]:
        """Return the owner reference, so that the lease is deleted with its node."""
        node = self._node.node
        if node is None:
            return []
        reference = {"apiVersion": "v1", "kind": "Node", "name": self._name}
        return [{**reference, "uid": node.metadata.uid}]
