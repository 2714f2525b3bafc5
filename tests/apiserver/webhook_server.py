"""A webhook over TLS in this process: what it was asked, and answers that a test chooses."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from moorage.cluster.access.identities import Authority, Subject
from tests.ports import free_port

Json = dict[str, Any]
Answer = Callable[[Json], Json | bytes | web.StreamResponse | Awaitable[Any]]
"""Returns the `response` for a `request`, or a whole body."""

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
MUTATING = f"{ADMISSION}/mutatingwebhookconfigurations"
VALIDATING = f"{ADMISSION}/validatingwebhookconfigurations"
CONFIG_MAPS: Json = {
    "operations": ["CREATE", "UPDATE", "DELETE"], "apiGroups": [""], "apiVersions": ["v1"],
    "resources": ["configmaps"],
}  # fmt: skip


def patched(*operations: Json) -> Json:
    """A response that allows the write and changes it."""
    patch = base64.b64encode(json.dumps(operations).encode()).decode()
    return {"allowed": True, "patch": patch, "patchType": "JSONPatch"}


class WebhookServer:
    """Answers `/PATH` by the test's function of that name; `asked` are the reviews, in order."""

    def __init__(self, port: int, authority: Authority) -> None:
        self.url = f"https://127.0.0.1:{port}"
        self.authority = authority
        self.answers: dict[str, Answer] = {}
        self.asked: list[tuple[str, Json]] = []

    def requests(self, path: str) -> list[Json]:
        return [review["request"] for asked, review in self.asked if asked == path]

    def configuration(self, name: str, *webhooks: Json) -> Json:
        """A configuration of webhooks; each is named by the `path` that it calls."""
        return {"metadata": {"name": name}, "webhooks": [self.webhook(**one) for one in webhooks]}

    def webhook(self, path: str, **fields: Any) -> Json:
        bundle = base64.b64encode(self.authority.pair.certificate.read_bytes()).decode()
        return {
            "name": f"{path}.hooks.example",
            "clientConfig": {"url": f"{self.url}/{path}", "caBundle": bundle},
            "rules": [CONFIG_MAPS],
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            **fields,
        }

    async def answer(self, http: web.BaseRequest) -> web.StreamResponse:
        path = http.path.removeprefix("/")
        review = json.loads(await http.read())
        self.asked.append((path, review))
        response = self.answers[path](review["request"])
        if isinstance(response, Awaitable):
            response = await response
        if isinstance(response, web.StreamResponse):
            return response
        if isinstance(response, bytes):
            return web.Response(body=response)
        head = {key: review[key] for key in ("apiVersion", "kind")}
        response = {"uid": review["request"]["uid"], **response}
        return web.json_response({**head, "response": response})


@asynccontextmanager
async def webhooks(authority: Authority) -> AsyncIterator[WebhookServer]:
    """A server on loopback; `authority` vouches for it."""
    pair = authority.issue("webhook", Subject("webhook", hosts=("127.0.0.1",)))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    port = free_port()
    served = WebhookServer(port, authority)
    runner = web.ServerRunner(web.Server(served.answer), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=context).start()
    try:
        yield served
    finally:
        await runner.cleanup()
