"""A control plane without nodes: an API server in this process, the controllers beside it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from moorage.api.clock import SystemClock, format_time
from moorage.api.pods import Pod
from moorage.apiserver.server.lifecycle import ApiServer
from moorage.controllers import ControllerOptions, run_controllers
from moorage.wire.client.config import ClientConfig
from moorage.wire.client.informer import Informer, object_key
from moorage.wire.client.queue import WorkQueue
from moorage.wire.client.resources import NODES, PODS, SERVICE_ACCOUNTS, Resource
from moorage.wire.client.rest import Client, PatchType
from tests.apiserver.options import loopback_options
from tests.authorities import ADMIN, CONTROLLERS, prepared_authority
from tests.ports import free_port

_DEADLINE_S = 20.0


class Cluster:
    """What a test does with it."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def until(
        self,
        resource: Resource[Any],
        condition: Callable[[list[Any]], bool],
        *,
        within_s: float = _DEADLINE_S,
    ) -> list[Any]:
        """Wait until a statement about all objects of a kind holds; they are returned."""
        informer = Informer(self.client, resource)
        changed = asyncio.Event()
        informer.add_handler(lambda _before, _after: changed.set())
        follower = asyncio.create_task(informer.run())
        try:
            async with asyncio.timeout(within_s):
                await informer.wait_synced()
                while not condition(list(informer)):
                    changed.clear()
                    await changed.wait()
        except TimeoutError:
            shown = [msgspec.json.encode(obj).decode() for obj in informer]
            raise AssertionError(f"never came true of {resource.plural}: {shown}") from None
        finally:
            follower.cancel()
        return list(informer)

    async def status(
        self,
        resource: Resource[Any],
        name: str,
        status: dict[str, Any],
        namespace: str = "default",
    ) -> None:
        place = namespace if resource.is_namespaced else None
        await self.client.patch(
            resource, name, {"status": status}, place,
            kind=PatchType.STRATEGIC, subresource="status",
        )  # fmt: skip

    async def heartbeat(self, node: str, ready: str = "True") -> None:
        now = format_time(datetime.now(UTC))
        condition = {
            "type": "Ready",
            "status": ready,
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        await self.status(NODES, node, {"conditions": [condition]})


class FakeNodeAgent:
    """Binds every pod to its node, says it is ready, and ends it when it is deleted."""

    def __init__(self, cluster: Cluster, node: str) -> None:
        self._client = cluster.client
        self._cluster = cluster
        self._node = node
        self._pods = Informer(cluster.client, PODS)
        self._queue: WorkQueue[str] = WorkQueue("fake node agent")
        self._pods.add_handler(self._pod_changed)

    def _pod_changed(self, before: Pod | None, after: Pod | None) -> None:
        del before
        if after is not None:
            self._queue.add(object_key(after.metadata))

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._pods.run())
            tasks.create_task(self._queue.run(self._tend))

    async def _tend(self, key: str) -> float | None:
        pod = self._pods.get_key(key)
        if pod is None:
            return None
        name, namespace = pod.metadata.name, pod.metadata.namespace
        if pod.metadata.deletion_timestamp is not None:
            await self._client.delete(PODS, name, namespace, grace_period_seconds=0)
        elif not pod.spec.node_name:
            await self._bind(name, namespace)
        elif pod.status.phase != "Running":
            now = format_time(datetime.now(UTC))
            ready = {"type": "Ready", "status": "True", "lastTransitionTime": now}
            running = {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}
            status = {**running, "conditions": [ready]}
            await self._cluster.status(PODS, name, status, namespace)
        return None

    async def _bind(self, name: str, namespace: str) -> None:
        binding = {
            "kind": "Binding",
            "apiVersion": "v1",
            "metadata": {"name": name},
            "target": {"kind": "Node", "name": self._node},
        }
        path = PODS.path(namespace, name, "binding")
        await self._client.request("POST", path, body=msgspec.json.encode(binding))


@asynccontextmanager
async def running_cluster(directory: Path, **options: Any) -> AsyncIterator[Cluster]:
    """A cluster with its controllers at work; `options` are ControllerOptions."""
    authority = prepared_authority(directory / "pki")
    admin = authority.issue("admin", ADMIN)
    manager = authority.issue("controllers", CONTROLLERS)
    ca = authority.pair.certificate
    port = free_port()
    server_options, api_options = loopback_options(directory, authority, port)

    def client(pair: Any, user_agent: str) -> Client:
        config = ClientConfig(
            server=api_options.public_url,
            ca=ca.read_bytes(),
            certificate=pair.certificate.read_bytes(),
            key=pair.key.read_bytes(),
        )
        return Client(config, user_agent=user_agent)

    async with (
        ApiServer(server_options, api_options) as server,
        client(admin, "test") as own,
        client(manager, "moorage-controllers") as theirs,
    ):
        wanted = ControllerOptions(cluster_ca=ca.read_text(), **options)
        loops = [
            asyncio.create_task(server.run()),
            asyncio.create_task(run_controllers(theirs, wanted, SystemClock())),
        ]
        cluster = Cluster(own)
        try:
            # No pod is admitted before its namespace has an account.
            await cluster.until(SERVICE_ACCOUNTS, _has_default)
            yield cluster
        finally:
            for loop in loops:
                loop.cancel()
            await asyncio.gather(*loops, return_exceptions=True)


def _has_default(accounts: list[Any]) -> bool:
    return any(
        (account.metadata.namespace, account.metadata.name) == ("default", "default")
        for account in accounts
    )
