"""An extension server over mutual TLS in this process, which believes the front proxy."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from moorage.cluster.access.identities import Authority, Subject
from tests.ports import free_port

Json = dict[str, Any]
GROUP = "wardle.example.com"
PLACE = f"/apis/{GROUP}/v1alpha1"
RESOURCES: Json = {
    "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{GROUP}/v1alpha1",
    "resources": [
        {"name": "flunders", "singularName": "flunder", "namespaced": True, "kind": "Flunder",
         "verbs": ["create", "get", "list", "watch"], "shortNames": ["fl"]},
        {"name": "flunders/status", "singularName": "", "namespaced": True, "kind": "Flunder",
         "verbs": ["get"]},
    ],
}  # fmt: skip

Answer = Callable[[web.BaseRequest], web.StreamResponse | Awaitable[web.StreamResponse]]


class ExtensionServer:
    """`asked` are the requests, in order; `answers` are by path, 404 for any other."""

    def __init__(self, port: int) -> None:
        self.authority = f"127.0.0.1:{port}"
        self.asked: list[web.BaseRequest] = []
        self.answers: dict[str, Answer] = {PLACE: lambda _: web.json_response(RESOURCES)}

    def last(self, path: str) -> web.BaseRequest:
        return [http for http in self.asked if http.path == path][-1]

    async def answer(self, http: web.BaseRequest) -> web.StreamResponse:
        self.asked.append(http)
        tls = http.transport.get_extra_info("ssl_object") if http.transport else None
        assert tls is not None
        assert tls.getpeercert()["subject"] == ((("commonName", "front-proxy-client"),),)
        answer = self.answers.get(http.path)
        if answer is None:
            return web.Response(status=404, text="404 page not found\n")
        response = answer(http)
        return response if isinstance(response, web.StreamResponse) else await response


@asynccontextmanager
async def extension_server(
    authority: Authority, front_proxy_authority: Path
) -> AsyncIterator[ExtensionServer]:
    """A server on loopback with the certificate of the service `default/sample-api`."""
    names = ("sample-api.default.svc",)
    pair = authority.issue("extension", Subject("extension", hosts=names))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    context.load_verify_locations(front_proxy_authority)
    context.verify_mode = ssl.CERT_REQUIRED
    port = free_port()
    served = ExtensionServer(port)
    runner = web.ServerRunner(web.Server(served.answer), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=context).start()
    try:
        yield served
    finally:
        await runner.cleanup()
