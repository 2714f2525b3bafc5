"""Roles that tests give to people, through the API."""

from __future__ import annotations

from collections.abc import Sequence

from tests.apiserver.running_server import Running

RBAC = "rbac.authorization.k8s.io"
ROOT = f"/apis/{RBAC}/v1"


async def grant(
    server: Running, user: str, verbs: Sequence[str], *resources: str, group: str = ""
) -> None:
    """Let a user do that in the whole cluster, besides what it may do already."""
    name = f"{user}:{'-'.join((*verbs, *resources)).replace('/', '-').replace('*', 'all')}"
    rule = {"verbs": list(verbs), "apiGroups": [group], "resources": list(resources)}
    role = {
        "apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": name},
        "rules": [rule],
    }  # fmt: skip
    binding = {
        "apiVersion": f"{RBAC}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "User", "name": user}],
    }  # fmt: skip
    assert (await server.ask("POST", f"{ROOT}/clusterroles", role)).status == 201
    assert (await server.ask("POST", f"{ROOT}/clusterrolebindings", binding)).status == 201
