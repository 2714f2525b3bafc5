"""An API server with our definitions, a node and three classes, and short ways to use it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from moorage.api.runtime_group import API_VERSION, GROUP
from moorage.runtimes.custom_resources import install_definitions
from moorage.wire.client.config import ClientConfig
from moorage.wire.client.rest import Client
from tests.apiserver.running_server import Answer, Running, serving

_GROUP_PATH = f"/apis/{API_VERSION}"
_CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"


RUNSC = {
    "has": "terminal no-network",
    "lacks": "host-network privileged gpu",
    "isolation": "user-space-kernel",
}


class Server:
    """The server, and what tests do with it. Each returns the answer or the object."""

    def __init__(self, running: Running) -> None:
        self.running = running

    async def create(self, path: str, body: dict[str, Any], status: int = 201) -> Answer:
        answer = await self.running.ask("POST", path, body)
        assert answer.status == status, answer.text
        return answer

    async def runtime_class(self, name: str, handler: str, **more: Any) -> None:
        metadata = {"name": name, **more.pop("metadata", {})}
        await self.create(_CLASSES, {"metadata": metadata, "handler": handler, **more})

    async def node(self, name: str, *handlers: str, **more: Any) -> None:
        """Create a node with its status."""
        body = {"metadata": {"name": name, "labels": more.pop("labels", {})}}
        await self.create("/api/v1/nodes", body)
        status = {
            "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
            "runtimeHandlers": [{"name": handler} for handler in handlers],
            **more,
        }
        await self.patch(f"/api/v1/nodes/{name}/status", {"status": status})

    async def profile(
        self, node: str, handler: str, *, has: str = "", lacks: str = "", isolation: str = ""
    ) -> None:
        """Create the profile of a node's handler, or change its status."""
        path, name = f"{_GROUP_PATH}/runtimeprofiles", f"{node}.{handler}"
        body = custom("RuntimeProfile", name, spec={"nodeName": node, "handler": handler})
        answer = await self.running.ask("POST", path, body)
        assert answer.status in (201, 409), answer.text
        condition = {"type": "Working", "status": "True", "reason": "ProbeRan", "message": "",
                     "lastTransitionTime": "2026-01-01T00:00:00Z"}  # fmt: skip
        features = [
            *({"name": one, "state": "Supported"} for one in has.split()),
            *({"name": one, "state": "Unsupported"} for one in lacks.split()),
        ]
        status = {"isolation": isolation, "features": features, "conditions": [condition]}
        await self.patch(f"{path}/{name}/status", {"status": status})

    async def patch(self, path: str, body: dict[str, Any], status: int = 200) -> Answer:
        answer = await self.running.ask(
            "PATCH", path, msgspec.json.encode(body), Content_Type="application/merge-patch+json"
        )
        assert answer.status == status, answer.text
        return answer

    async def policy(self, name: str, namespace: str = "default", **spec: Any) -> Answer:
        """Create a RuntimePolicy, or without a namespace a ClusterRuntimePolicy."""
        if not namespace:
            path = f"{_GROUP_PATH}/clusterruntimepolicies"
            return await self.create(path, custom("ClusterRuntimePolicy", name, spec=spec))
        path = f"{_GROUP_PATH}/namespaces/{namespace}/runtimepolicies"
        return await self.create(path, custom("RuntimePolicy", name, spec=spec))

    async def account(self, namespace: str) -> None:
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        await self.create(path, {"metadata": {"name": "default"}})

    async def clear(self, *namespaces: str) -> None:
        """Delete policies, quotas and pods, all nodes but n1, and profiles but n1's."""
        paths = [f"{_GROUP_PATH}/clusterruntimepolicies"]
        for namespace in namespaces:
            paths.append(f"/api/v1/namespaces/{namespace}/pods?gracePeriodSeconds=0")
            for plural in ("runtimepolicies", "runtimeclassquotas"):
                paths.append(f"{_GROUP_PATH}/namespaces/{namespace}/{plural}")
        for path in paths:
            answer = await self.running.ask("DELETE", path)
            assert answer.status == 200, answer.text
        for kind in ("/api/v1/nodes", f"{_GROUP_PATH}/runtimeprofiles"):
            for item in (await self.running.ask("GET", kind)).json["items"]:
                name = item["metadata"]["name"]
                if name.partition(".")[0] != "n1":
                    assert (await self.running.ask("DELETE", f"{kind}/{name}")).status == 200
        await self.profile("n1", "runsc", **RUNSC)

    async def namespace(self, name: str, **metadata: Any) -> None:
        await self.create("/api/v1/namespaces", {"metadata": {"name": name, **metadata}})
        await self.account(name)

    async def pod(
        self, name: str, namespace: str = "default", *, token: str = "admin-token", **given: Any
    ) -> Answer:
        """Create a pod; `annotations` and `labels` are its metadata's, the rest its spec's."""
        metadata: dict[str, Any] = {
            "name": name,
            **{key: given.pop(key) for key in ("annotations", "labels") if key in given},
        }
        container = {"name": "c", "image": "i", **given.pop("container", {})}
        body = {"metadata": metadata, "spec": {"containers": [container], **given}}
        path = f"/api/v1/namespaces/{namespace}/pods"
        return await self.running.ask("POST", path, body, token=token)


def custom(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, **more}


def warnings(answer: Answer) -> list[str]:
    """The texts of an answer's Warning headers."""
    texts = answer.headers.getall("Warning", [])
    return [text.split('"', 1)[1].rstrip('"').replace('\\"', '"') for text in texts]


def needs(text: str) -> dict[str, str]:
    return {f"{GROUP}/needs": text}


@asynccontextmanager
async def serving_policies(directory: Path) -> AsyncIterator[Server]:
    """A server with our definitions and the namespace default."""
    async with serving(directory, runs=True) as running:
        config = ClientConfig(
            server=running.url,
            ca=running.authority.pair.certificate.read_bytes(),
            token="admin-token",
        )
        async with Client(config, user_agent="tests") as client:
            await install_definitions(client)
        server = Server(running)
        await server.account("default")
        yield server


async def add_three_runtimes(server: Server) -> None:
    """A node with runc, gVisor and Kata, as probes find them, and a class for each."""
    await server.node("n1", "runc", "runsc", "kata")
    await server.profile("n1", "runc", has="host-network privileged terminal gpu",
                         isolation="shared-kernel")  # fmt: skip
    await server.profile("n1", "runsc", **RUNSC)
    await server.profile("n1", "kata", has="terminal gpu", lacks="host-network",
                         isolation="virtual-machine")  # fmt: skip
    await server.runtime_class("runc", "runc")
    await server.runtime_class("gvisor", "runsc", overhead={"podFixed": {"memory": "32Mi"}})
    await server.runtime_class("kata", "kata", overhead={"podFixed": {"memory": "160Mi"}})
