"""The options of an API server on loopback, its certificates and its database in one directory."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Any

from moorage.apiserver.assembly import ApiOptions
from moorage.apiserver.node_agents import NodeTls
from moorage.apiserver.server import ServerOptions
from moorage.cluster.certificates import Authority, Subject
from moorage.serving import Limits


def loopback_options(
    directory: Path, authority: Authority, port: int, limits: Limits | None = None, **more: Any
) -> tuple[ServerOptions, ApiOptions]:
    """`more` are ApiOptions."""
    pair = authority.issue("server", Subject("kube-apiserver", hosts=("127.0.0.1",)))
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
        **more,
    }
    return server_options, ApiOptions(**api_fields)
