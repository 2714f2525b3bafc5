"""A pod `p` to bind or evict, on a server of its own."""

from __future__ import annotations

from typing import Any

from tests.apiserver.running_server import Running

CORE = "/api/v1/namespaces/default"
POD = f"{CORE}/pods/p"
MERGE = "application/merge-patch+json"


async def add_pod(server: Running, status: Any = None, **spec: Any) -> None:
    pod = {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "labels": {"kept": "1", "both": "old"}},
        "spec": {"containers": [{"name": "c", "image": "i"}], **spec},
    }  # fmt: skip
    assert (await server.ask("POST", f"{CORE}/pods", pod)).status == 201
    if status:
        body = {"status": status}
        answer = await server.ask("PATCH", f"{POD}/status", body, Content_Type=MERGE)
        assert answer.status == 200, answer.text


async def stored(server: Running) -> Any:
    return (await server.ask("GET", POD)).json
