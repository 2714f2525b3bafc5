"""What every cluster begins with, against a recorded table: roles, bindings, priorities."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from moorage.apiserver.authorization.node import NODE_RULES
from moorage.apiserver.server.bootstrap import SYSTEM_NAMESPACES
from tests.apiserver.running_server import serving
from tests.recording import assert_recorded

_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_PATHS = {
    "clusterroles": f"{_RBAC}/clusterroles",
    "clusterrolebindings": f"{_RBAC}/clusterrolebindings",
    "roles": f"{_RBAC}/roles",
    "rolebindings": f"{_RBAC}/rolebindings",
    "priorityclasses": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "namespaces": "/api/v1/namespaces",
}


def _shown(item: dict[str, Any]) -> str:
    meta = item.pop("metadata")
    kept = {key: meta.get(key) for key in ("namespace", "labels", "annotations") if key in meta}
    return repr({**kept, **item})


def _key(metadata: dict[str, Any]) -> str:
    return "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))


async def test_what_a_new_cluster_has(tmp_path: Path) -> None:
    table = {"node rules": repr(NODE_RULES), "namespaces": repr(SYSTEM_NAMESPACES)}
    async with serving(tmp_path) as server:
        for name, path in _PATHS.items():
            items = (await server.ask("GET", path)).json["items"]
            managers = {entry["manager"] for item in items
                        for entry in item["metadata"]["managedFields"]}  # fmt: skip
            assert managers == ({"apiserver"} if items else set()), name
            table |= {f"{name} {_key(item['metadata'])}": _shown(item) for item in items}
    assert_recorded("apiserver/bootstrap", table)
