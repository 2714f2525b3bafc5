"""ServiceCIDRs and IPAddresses over HTTP: what the conformance tests do, where services live."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Any

from tests.apiserver.running_server import Running, serving

ROOT = "/apis/networking.k8s.io/v1"
CIDRS, ADDRESSES = f"{ROOT}/servicecidrs", f"{ROOT}/ipaddresses"
SERVICES = "/api/v1/namespaces/default/services"
MERGE = {"Content_Type": "application/merge-patch+json"}


async def asked(server: Running, method: str, path: str, body: Any = None, **how: Any) -> Any:
    answer = await server.ask(method, path, body, **how)
    assert answer.status in (200, 201), answer.text
    return answer.json


async def test_operations_on_service_cidrs(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        default = await asked(server, "GET", f"{CIDRS}/kubernetes")
        assert default["spec"]["cidrs"] == ["10.96.0.0/16"]
        status = await asked(server, "GET", f"{CIDRS}/kubernetes/status")
        assert status["kind"] == "ServiceCIDR"
        assert status["metadata"]["uid"] == default["metadata"]["uid"]
        (condition,) = status["status"]["conditions"]
        assert (condition["type"], condition["status"]) == ("Ready", "True")
        assert len((await asked(server, "GET", CIDRS))["items"]) == 1


def ip(name: str, kind: str) -> dict[str, Any]:
    parent = {"group": "mygroup", "resource": "myresources", "namespace": "foo", "name": "bar"}
    return {"metadata": {"name": name, "labels": {"type": kind}}, "spec": {"parentRef": parent}}


async def test_operations_on_ip_addresses(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        await asked(server, "POST", ADDRESSES, ip("255.255.255.255", "broadcast"))
        await asked(server, "POST", ADDRESSES, ip("fe80::42:1dff:fe84:f9e2", "link-local"))
        path = f"{ADDRESSES}/255.255.255.255"
        note = {"metadata": {"annotations": {"patched": "true"}}}
        patched = await asked(server, "PATCH", path, note, **MERGE)
        patched["metadata"]["annotations"]["updated"] = "true"
        updated = await asked(server, "PUT", path, patched)
        assert updated["metadata"]["annotations"] == {"patched": "true", "updated": "true"}
        listed = await asked(server, "GET", f"{ADDRESSES}?labelSelector=type%3Dbroadcast")
        assert len(listed["items"]) == 1
        await asked(server, "DELETE", path)
        selected = f"{ADDRESSES}?labelSelector=type%3Dlink-local"
        await asked(server, "DELETE", selected)
        assert (await asked(server, "GET", selected))["items"] == []


def service(name: str, address: str = "") -> dict[str, Any]:
    spec: dict[str, Any] = {"ports": [{"port": 80}]}
    return {"metadata": {"name": name}, "spec": spec | ({"clusterIP": address} if address else {})}


async def test_services_live_in_ready_networks(tmp_path: Path) -> None:
    ready = {"type": "Ready", "status": "True", "reason": "", "message": "",
             "lastTransitionTime": "2026-01-01T00:00:00Z"}  # fmt: skip
    async with serving(tmp_path) as server:
        body = {"metadata": {"name": "more"}, "spec": {"cidrs": ["203.0.113.0/24"]}}
        await asked(server, "POST", CIDRS, body)
        refused = await server.ask("POST", SERVICES, service("a", "203.0.113.10"))
        assert refused.status == 422
        assert (
            "failed to allocate IP 203.0.113.10: the provided network does not match the current "
            "range"
        ) in refused.json["message"]
        status = {"status": {"conditions": [ready]}}
        await asked(server, "PATCH", f"{CIDRS}/more/status", status, **MERGE)
        await asked(server, "POST", SERVICES, service("a", "203.0.113.10"))
        given = await asked(server, "POST", SERVICES, service("b"))
        own = ipaddress.IPv4Network("10.96.0.0/16")
        assert ipaddress.IPv4Address(given["spec"]["clusterIP"]) in own


async def test_an_address_that_another_has_is_no_services(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        await asked(server, "POST", ADDRESSES, ip("10.96.0.77", "mine"))
        refused = await server.ask("POST", SERVICES, service("a", "10.96.0.77"))
        assert refused.status == 422
        assert "provided IP is already allocated" in refused.json["message"]


async def test_the_default_network_is_as_it_was_after_a_restart(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        before = await asked(server, "GET", f"{CIDRS}/kubernetes")
    async with serving(tmp_path) as server:
        assert await asked(server, "GET", f"{CIDRS}/kubernetes") == before
