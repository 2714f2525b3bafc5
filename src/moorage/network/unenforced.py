"""Node without a usable packet filter: pods that no policy selects run, the others wait.

A policy that is not enforced lets everyone in, which is worse than a pod that does not start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from moorage.api.clock import Clock
from moorage.api.runtime_group import RuntimeClass
from moorage.network.agent import NetworkRefusedError
from moorage.network.objects import NETWORK_POLICIES, NetworkPolicy
from moorage.network.policies.class_networks import ClassNetwork, network_of
from moorage.network.policies.peers import NetworkPod
from moorage.network.policies.rules import selecting
from moorage.wire.client.informer import Informer
from moorage.wire.client.resources import RUNTIME_CLASSES
from moorage.wire.client.rest import Client


class UnenforcedNetwork:
    """Admits pods in place of a network agent that cannot run. `reason` says why it cannot."""

    def __init__(self, client: Client, reason: str, clock: Clock) -> None:
        self._reason = reason
        self._policies: Informer[NetworkPolicy] = Informer(client, NETWORK_POLICIES, clock=clock)
        self._classes: Informer[RuntimeClass] = Informer(client, RUNTIME_CLASSES, clock=clock)

    async def run(self) -> None:
        """Follow policies and classes until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._policies.run())
            tasks.create_task(self._classes.run())

    async def admit(
        self, uid: str, namespace: str, labels: Mapping[str, str], addresses: Iterable[str],
        ports: Iterable[tuple[str, str, int]] = (), runtime_class: str = "",
    ) -> None:  # fmt: skip
        """Raises NetworkRefusedError for a pod that a policy selects or whose class shuts it."""
        await self._policies.wait_synced()
        await self._classes.wait_synced()
        found = self._classes.get(runtime_class)
        if found is not None and network_of(found) is not ClassNetwork.DEFAULT:
            raise NetworkRefusedError(
                f'RuntimeClass "{runtime_class}" has the network {network_of(found)}, and this '
                f"node cannot enforce it: {self._reason}"
            )
        pod = NetworkPod(uid, namespace, dict(labels), tuple(addresses), tuple(ports))
        names = sorted(one.metadata.name for one in selecting(self._policies, pod))
        if names:
            raise NetworkRefusedError(
                f"NetworkPolicy {', '.join(names)} selects the pod, and this node cannot enforce "
                f"it: {self._reason}"
            )
