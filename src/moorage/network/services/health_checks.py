"""Health checks: a port of the node for each load balancer with a local traffic policy.

The load balancer in front asks each node whether it has endpoints of the Service. Source: core/v1
`healthCheckNodePort`; kube-proxy `healthcheck/service_health.go`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
from aiohttp import web

from moorage.api.logs import Log
from moorage.api.services import Service

PORT_HEADER: Final = "X-Load-Balancing-Endpoint-Weight"
_SHUTDOWN_S: Final = 1.0

log = Log(__name__)


def health_port(service: Service | None) -> int:
    """Return the port of a Service's health check, 0 without one."""
    if service is None or service.spec.external_traffic_policy != "Local":
        return 0
    return service.spec.health_check_node_port if service.spec.type == "LoadBalancer" else 0


class HealthChecks:
    """Serves the health check of each Service, by `namespace/name`."""

    def __init__(self, count: Callable[[str], int]) -> None:
        """`count` returns how many ready endpoints of a Service the node has."""
        self._count = count
        self._runners: dict[str, tuple[int, web.ServerRunner]] = {}

    async def follow(self, key: str, port: int) -> None:
        """Serve a Service's health check on a port from now on, 0 for no more."""
        present = self._runners.get(key)
        if present is not None and present[0] == port:
            return
        if present is not None:
            del self._runners[key]
            await present[1].cleanup()
        if port:
            await self._serve(key, port)

    async def close(self) -> None:
        """Stop serving."""
        for key in list(self._runners):
            await self.follow(key, 0)

    async def _serve(self, key: str, port: int) -> None:
        async def answer(_: web.BaseRequest) -> web.StreamResponse:
            return _answer(key, self._count(key))

        runner = web.ServerRunner(web.Server(answer, access_log=None), shutdown_timeout=_SHUTDOWN_S)
        await runner.setup()
        try:
            await web.TCPSite(runner, port=port).start()
        except OSError as error:
            # Another program has the port: the load balancer sees no node here.
            log.warning("health check not served", service=key, port=port, reason=error)
            await runner.cleanup()
        else:
            self._runners[key] = port, runner


def _answer(key: str, endpoints: int) -> web.Response:
    namespace, _, name = key.partition("/")
    document = {
        "service": {"namespace": namespace, "name": name},
        "localEndpoints": endpoints,
        "serviceProxyHealthy": True,
    }
    return web.Response(
        body=msgspec.json.encode(document),
        status=200 if endpoints else 503,
        content_type="application/json",
        headers={PORT_HEADER: str(endpoints), "X-Content-Type-Options": "nosniff"},
    )
