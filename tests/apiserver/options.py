"""The options of an API server on loopback, its certificates and its database in one directory."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Any

from moorage.apiserver.aggregation import FrontProxy
from moorage.apiserver.endpoints.node_agents import NodeTls
from moorage.apiserver.server.assembly import ApiOptions
from moorage.apiserver.server.lifecycle import ServerOptions
from moorage.cluster.access.certificates import Authority
from moorage.wire.serving import Limits
from tests.authorities import FRONT_PROXY, SERVER, prepared_front_proxy


def front_proxy(directory: Path, client_authority: Path) -> FrontProxy:
    """A front proxy with an authority of its own, as a cluster has it."""
    authority = prepared_front_proxy(directory / "front-proxy")
    pair = authority.issue("client", FRONT_PROXY)
    return FrontProxy(pair.certificate, pair.key, authority.pair.certificate, client_authority)


def loopback_options(
    directory: Path, authority: Authority, port: int, limits: Limits | None = None, **more: Any
) -> tuple[ServerOptions, ApiOptions]:
    """`more` are ApiOptions."""
    pair = authority.issue("server", SERVER)
    ca = authority.pair.certificate
    server_options = ServerOptions(
        database=directory / "state.db", certificate=pair.certificate, key=pair.key, client_ca=ca,
        addresses=("127.0.0.1",), port=port, limits=limits,
    )  # fmt: skip
    api_fields = {
        "signing_key": authority.signing_key(),
        "issuer": "https://kubernetes.default.svc",
        "public_url": f"https://127.0.0.1:{port}",
        "service_network": ipaddress.IPv4Network("10.96.0.0/16"),
        "node_tls": NodeTls(pair.certificate, pair.key, ca),
        "front_proxy": front_proxy(directory, ca),
        **more,
    }
    return server_options, ApiOptions(**api_fields)
