"""Health checks: the answers to a load balancer in front of the node."""

from __future__ import annotations

import aiohttp
import pytest

from moorage.network.services.health_checks import HealthChecks, health_port
from tests.network.objects import a_service
from tests.ports import free_port


async def ask(port: int) -> tuple[int, object, str]:
    url = f"http://127.0.0.1:{port}/healthz"
    async with aiohttp.ClientSession() as http, http.get(url) as answer:
        weight = answer.headers["X-Load-Balancing-Endpoint-Weight"]
        return answer.status, await answer.json(), weight


async def test_a_node_says_how_many_endpoints_it_has() -> None:
    counts, port = {"default/web": 2}, free_port()
    checks = HealthChecks(lambda key: counts[key])
    try:
        await checks.follow("default/web", port)
        document = {
            "service": {"namespace": "default", "name": "web"},
            "localEndpoints": 2,
            "serviceProxyHealthy": True,
        }
        assert await ask(port) == (200, document, "2")
        counts["default/web"] = 0
        assert await ask(port) == (503, document | {"localEndpoints": 0}, "0")
        other = free_port()
        await checks.follow("default/web", other)
        assert (await ask(other))[0] == 503
        with pytest.raises(aiohttp.ClientConnectorError):
            await ask(port)
    finally:
        await checks.close()
    with pytest.raises(aiohttp.ClientConnectorError):
        await ask(other)


async def test_a_port_that_another_program_has_is_left_to_it() -> None:
    first, second, port = HealthChecks(lambda _: 1), HealthChecks(lambda _: 2), free_port()
    try:
        await first.follow("default/a", port)
        await second.follow("default/b", port)
        assert (await ask(port))[2] == "1"
    finally:
        await first.close()
        await second.close()


def test_which_services_have_a_health_check() -> None:
    local = {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 31000}
    assert health_port(a_service(**local)) == 31000  # type: ignore[arg-type]
    for change in ({"externalTrafficPolicy": "Cluster"}, {"type": "NodePort"}):
        assert health_port(a_service(**{**local, **change})) == 0  # type: ignore[arg-type]
    assert health_port(None) == 0
