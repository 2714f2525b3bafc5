"""The admission plugins of a running API server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from moorage.api.host_ports import Listener
from tests.apiserver.access import RBAC, ROOT, grant
from tests.apiserver.running_server import serving

_CORE = "/api/v1"
_CONTAINER = {"name": "c", "image": "i"}


def _pod(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "p"},
        "spec": {"containers": [_CONTAINER], **spec},
    }  # fmt: skip


async def test_every_admission_plugin_is_at_work(tmp_path: Path) -> None:
    listener = Listener("API server", "127.0.0.1", 6443)
    async with serving(tmp_path, listeners=(listener,)) as server:

        async def created(path: str, body: Any, **how: Any) -> Any:
            answer = await server.ask("POST", path, body, **how)
            assert answer.status == 201, answer.text
            return answer.json

        async def refused(path: str, body: Any, why: str, **how: Any) -> None:
            answer = await server.ask("POST", path, body, **how)
            assert answer.status in (403, 404, 422), answer.text
            assert why in answer.json["message"]

        pods = f"{_CORE}/namespaces/default/pods"
        await refused(f"{_CORE}/namespaces/none/configmaps", {"metadata": {"name": "m"}},
                      'namespaces "none" not found')  # fmt: skip
        await refused(pods, _pod(), "error looking up service account default/default")
        await created(
            f"{_CORE}/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}}
        )
        await refused(f"{_CORE}/nodes", {"metadata": {"name": "n2"}}, "is not allowed",
                      token="agent-token")  # fmt: skip
        node = await created(f"{_CORE}/nodes", {"metadata": {"name": "n1"}}, token="agent-token")
        assert [taint["key"] for taint in node["spec"]["taints"]] == [
            "node.kubernetes.io/not-ready"
        ]
        classes = "/apis/node.k8s.io/v1/runtimeclasses"
        await created(
            classes,
            {"metadata": {"name": "vm"}, "handler": "vm", "overhead": {"podFixed": {"cpu": "1"}}},
        )
        await refused(pods, _pod(runtimeClassName="none"), 'RuntimeClass "none" not found')
        spec = (await created(pods, _pod(runtimeClassName="vm")))["spec"]
        assert (spec["overhead"], spec["priority"]) == ({"cpu": "1"}, 0)
        assert [toleration["tolerationSeconds"] for toleration in spec["tolerations"]] == [300, 300]
        port = {"containerPort": 1, "hostPort": 6443}
        await refused(pods, _pod(containers=[{**_CONTAINER, "ports": [port]}]), "API server")
        service = await created(
            f"{_CORE}/namespaces/default/services",
            {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}},
        )
        assert service["spec"]["clusterIP"].startswith("10.96.")
        await grant(server, "alice", ["create"], "clusterroles", group=RBAC)
        rules = [{"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"]}]
        await refused(
            f"{ROOT}/clusterroles", {"metadata": {"name": "more"}, "rules": rules},
            "attempting to grant", token="alice-token",
        )  # fmt: skip


async def test_service_with_chosen_addresses_is_created_again_at_once(tmp_path: Path) -> None:
    services = f"{_CORE}/namespaces/default/services"
    spec = {
        "type": "NodePort",
        "clusterIP": "10.96.0.77",
        "ports": [{"port": 80, "nodePort": 30080}],
    }
    body = {"metadata": {"name": "s"}, "spec": spec}
    wrong = {"metadata": {"name": "s"}, "spec": {**spec, "externalName": "-"}}
    async with serving(tmp_path) as server:
        # A refusal after the addresses were claimed releases them too.
        refused = await server.ask("POST", services, {**wrong, "metadata": {"name": "S"}})
        assert refused.status == 422, refused.text
        for _ in range(2):
            assert (await server.ask("POST", services, body)).status == 201
            assert (await server.ask("DELETE", f"{services}/s")).status == 200
