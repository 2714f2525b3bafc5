"""Warnings of objects that the cluster does not implement yet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from moorage.api.missing_network import EVERYTHING
from tests.apiserver.running_server import serving

NETWORKING = "/apis/networking.k8s.io/v1/namespaces/default"
SERVICES = "/api/v1/namespaces/default/services"
PORTS = {"ports": [{"port": 80}], "selector": {"a": "b"}}
BACKEND = {"service": {"name": "a", "port": {"number": 80}}}


@pytest.mark.parametrize(
    ("path", "spec", "says"),
    [
        (SERVICES, PORTS, "nothing routes the cluster IP of this Service"),
        (SERVICES, {**PORTS, "type": "NodePort"}, "nothing routes the cluster IP of this Service"),
        (SERVICES, {**PORTS, "clusterIP": "None"}, ""),
        (SERVICES, {"type": "ExternalName", "externalName": "a.example"}, ""),
        (f"{NETWORKING}/ingresses", {"defaultBackend": BACKEND}, "nothing serves this Ingress"),
        (f"{NETWORKING}/networkpolicies", {"podSelector": {}},
         "nothing enforces this NetworkPolicy"),
    ],
)  # fmt: skip
async def test_what_is_not_implemented_is_warned_of(
    tmp_path: Path, path: str, spec: dict[str, Any], says: str
) -> None:
    body = {"metadata": {"name": "a"}, "spec": spec}
    async with serving(tmp_path, missing_network=EVERYTHING) as server:
        created = await server.ask("POST", path, body)
        assert created.status == 201, created.text
        warning = created.headers.get("Warning", "")
        assert warning.startswith('299 - "' + says) if says else not warning
        labels = {"metadata": {"labels": {"a": "b"}}}
        changed = await server.ask(
            "PATCH", f"{path}/a", labels, Content_Type="application/merge-patch+json"
        )
        assert (changed.status, "Warning" in changed.headers) == (200, False)


async def test_other_networks_are_not_warned_of(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        created = await server.ask("POST", SERVICES, {"metadata": {"name": "a"}, "spec": PORTS})
        assert (created.status, "Warning" in created.headers) == (201, False)
