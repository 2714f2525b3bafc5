"""Endpoint access control: admits the API server by its client certificate.

The TLS layer has verified the signature against the client CA; here the common name is checked.
Source: kubelet authentication/authorization, in its simplest form (x509, fixed names).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from moorage.wire.serving import prove

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def guard(names: frozenset[str]) -> Any:
    """Return middleware that admits only these common names.

    When empty, any verified certificate is admitted.
    """

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        certificate = request.transport.get_extra_info("peercert") if request.transport else None
        if not certificate:
            return web.Response(status=401, text="Unauthorized")
        user = common_name(certificate)
        if names and user not in names:
            return web.Response(
                status=403,
                text=f"Forbidden (user={user}, verb={_verb(request)}, resource=nodes, "
                "subresource(s)=[proxy])\n",
            )
        prove(request)
        return await handler(request)

    return check


def common_name(certificate: dict[str, Any]) -> str:
    """Return a certificate's last common name, which the API server goes by; empty without one."""
    entries = [entry for group in certificate.get("subject", ()) for entry in group]
    return next((str(value) for key, value in reversed(entries) if key == "commonName"), "")


_VERBS = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "DELETE": "delete"}


def _verb(request: web.Request) -> str:
    return _VERBS.get(request.method, request.method.lower())
