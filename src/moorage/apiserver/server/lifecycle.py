"""API server lifecycle: listeners, bootstrap objects, maintenance.

async with ApiServer(options, api_options) as server:   # entered when `/readyz` says ok
    await server.run()                                  # until cancelled
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import msgspec
from aiohttp import web

from moorage.api.clock import Clock, SystemClock
from moorage.api.logs import Log
from moorage.apiserver.aggregation import write_trust
from moorage.apiserver.server.assembly import READINESS, Api, ApiOptions, assemble
from moorage.apiserver.server.bootstrap import bootstrap, create_api_service, write_service_network
from moorage.apiserver.server.compaction import keep_compacting, keep_expiring_events
from moorage.apiserver.server.own_endpoints import (
    correct_own_service,
    has_own_service,
    write_own_endpoints,
)
from moorage.apiserver.server.token_uses import start_tracking
from moorage.apiserver.storage import SqliteStore
from moorage.linux.descriptors import descriptor_limit
from moorage.linux.listeners import IP_FREEBIND
from moorage.wire.serving import Acceptor, Limits, server_context

_OWN_SERVICE_S = 10.0
"""As often as upstream looks. Source: controlplane `DefaultEndpointReconcilerInterval`."""

log = Log(__name__)


class ServerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Data and listen addresses. Paths are of PEM files, except the store's and the mark's.

    `mark` records outside the database that it was created; next to the database by default.
    """

    database: Path
    certificate: Path
    key: Path
    client_ca: Path
    addresses: tuple[str, ...]
    port: int
    mark: Path | None = None
    limits: Limits | None = None
    """Connection limits; by default those that fit the file descriptor limit of the process."""


class ApiServer:
    """One API server on its own store."""

    def __init__(
        self, options: ServerOptions, api_options: ApiOptions, clock: Clock | None = None
    ) -> None:
        self._options = options
        self._api_options = api_options
        self._clock = clock or SystemClock()
        self._stack = AsyncExitStack()
        self._store: SqliteStore
        self.api: Api

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            self._store = await stack.enter_async_context(
                SqliteStore(self._options.database, mark=self._options.mark)
            )
            self.api = assemble(self._store, self._api_options, self._clock)
            stack.callback(self.api.worker.close)
            if self.api.audit is not None:
                stack.push_async_callback(self.api.audit.log.close)
            stack.push_async_callback(self.api.evaluator.close)
            await self.api.cache.load()
            self.api.custom.load()
            stack.callback(self.api.custom.close)
            await stack.enter_async_context(self.api.connect)
            await stack.enter_async_context(self.api.proxy)
            await stack.enter_async_context(self.api.resource_metrics)
            await stack.enter_async_context(self.api.components)
            await stack.enter_async_context(self.api.webhooks)
            await stack.enter_async_context(self.api.aggregation.backends)
            await self._listen(stack)
            await write_service_network(
                self.api.objects, self._api_options.service_network, self._clock
            )
            # Together, so that they share commits.
            await asyncio.gather(
                bootstrap(
                    self.api.objects,
                    service_ip=str(self._api_options.service_network[1]),
                    secure_port=self._options.port,
                ),
                self.api.flows.ensure(),
            )
            await start_tracking(self.api.objects, self._clock)
            await self._write_own_service()
            await write_trust(self.api.objects, self._api_options.front_proxy)
            await self.api.aggregation.local.create_own()
            self.api.ready.update(READINESS)
            log.info(
                "ready",
                addresses=",".join(self._options.addresses),
                port=self._options.port,
                revision=self._store.revision,
            )
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def run(self) -> None:
        """Compact the store, expire events, serve custom resources, note uses of tokens.

        Also keeps the objects of flow control.
        """
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(keep_compacting(self._store, self._clock))
            tasks.create_task(keep_expiring_events(self.api.objects, self.api.cache, self._clock))
            tasks.create_task(self.api.custom.run())
            tasks.create_task(self.api.aggregation.run())
            tasks.create_task(self.api.flows.run())
            tasks.create_task(self.api.token_uses.run(self.api.objects))
            tasks.create_task(self._keep_own_service())

    async def _keep_own_service(self) -> None:
        """Create the service again, and its endpoints, after a user has deleted one of them."""
        while True:
            await self._clock.sleep(_OWN_SERVICE_S)
            if not has_own_service(self.api.objects):
                await create_api_service(
                    self.api.objects,
                    service_ip=str(self._api_options.service_network[1]),
                    secure_port=self._options.port,
                )
                await self._write_own_service()

    async def _write_own_service(self) -> None:
        public = urlsplit(self._api_options.public_url)
        await write_own_endpoints(
            self.api.objects, public.hostname or "", public.port or self._options.port
        )
        await correct_own_service(self.api.objects, self._options.port)

    async def _listen(self, stack: AsyncExitStack) -> None:
        server = web.Server(self.api.handler, handler_cancellation=True)
        runner = web.ServerRunner(server)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        options = self._options
        context = server_context(options.certificate, options.key, options.client_ca)
        limits = options.limits or Limits.for_descriptors(descriptor_limit())
        listeners = [_bound(address, options.port) for address in options.addresses]
        await stack.enter_async_context(
            Acceptor(server, listeners, limits, context, self.api.at_once)
        )


def _bound(address: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # The address may not exist yet: the pod gateway before the first pod.
    listener.setsockopt(socket.SOL_IP, IP_FREEBIND, 1)
    try:
        listener.bind((address, port))
    except OSError as error:
        listener.close()
        raise OSError(
            error.errno, f"cannot listen on {address}:{port}: {error.strerror}"
        ) from error
    return listener
