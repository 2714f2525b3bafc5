"""Service, Endpoints and EndpointSlice `kubernetes`: where the server is found."""

from __future__ import annotations

from pathlib import Path

from tests.apiserver.running_server import serving
from tests.apiserver.server.test_custom_resources import until
from tests.clocks import FakeClock

ENDPOINTS = "/api/v1/namespaces/default/endpoints"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
PORT = {"name": "https", "port": 6443, "protocol": "TCP"}


async def test_both_name_the_address_of_this_start(tmp_path: Path) -> None:
    for address in ("10.1.2.3", "10.1.2.3", "10.4.5.6"):
        async with serving(tmp_path, public_url=f"https://{address}:6443") as server:
            endpoints = (await server.ask("GET", f"{ENDPOINTS}/kubernetes")).json
            slice_ = (await server.ask("GET", f"{SLICES}/kubernetes")).json
        assert endpoints["subsets"] == [{"addresses": [{"ip": address}], "ports": [PORT]}]
        assert endpoints["metadata"]["labels"] == {
            "endpointslice.kubernetes.io/skip-mirror": "true"
        }
        assert slice_["addressType"] == "IPv4"
        assert slice_["endpoints"] == [{"addresses": [address], "conditions": {"ready": True}}]
        assert slice_["ports"] == [PORT]
        assert slice_["metadata"]["labels"] == {"kubernetes.io/service-name": "kubernetes"}


async def test_what_a_user_deletes_of_it_comes_back(tmp_path: Path) -> None:
    service = "/api/v1/namespaces/default/services/kubernetes"
    clock, url = FakeClock(), "https://10.1.2.3:6443"
    async with serving(tmp_path, public_url=url, clock=clock, runs=True) as server:
        for path in (service, f"{SLICES}/kubernetes"):
            assert (await server.ask("DELETE", path)).status == 200
            assert (await server.ask("GET", path)).status == 404
            clock.advance(10)
            await until(server, path, lambda answer: answer.status == 200)


async def test_loopback_is_no_endpoint(tmp_path: Path) -> None:
    for url in ("https://127.0.0.1:6443", "https://localhost:6443"):
        async with serving(tmp_path, public_url=url) as server:
            assert (await server.ask("GET", ENDPOINTS)).json["items"] == []
            assert (await server.ask("GET", SLICES)).json["items"] == []


async def test_the_service_follows_the_port_of_a_restarted_server(tmp_path: Path) -> None:
    path = "/api/v1/namespaces/default/services/kubernetes"
    ports = []
    for _ in range(2):
        async with serving(tmp_path) as server:
            service = (await server.ask("GET", path)).json
        ports.append(service["spec"]["ports"][0]["targetPort"])
        assert ports[-1] == server.port
    assert len(set(ports)) == 2


async def test_the_service(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        service = (await server.ask("GET", "/api/v1/namespaces/default/services/kubernetes")).json
    assert service["metadata"]["labels"] == {"component": "apiserver", "provider": "kubernetes"}
    assert service["spec"]["clusterIP"] == "10.96.0.1"
    assert service["spec"]["ports"] == [
        {"name": "https", "port": 443, "protocol": "TCP", "targetPort": server.port}
    ]
