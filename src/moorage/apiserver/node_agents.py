"""Node agents as the API server reaches them: their address, and mutual TLS."""

from __future__ import annotations

import ssl
from pathlib import Path

import msgspec

from moorage.api.errors import InternalError
from moorage.registry.kind import Obj


class NodeTls(msgspec.Struct, frozen=True):
    """Mutual TLS with node agents. Paths are of PEM files."""

    certificate: Path
    key: Path
    authority: Path

    def context(self) -> ssl.SSLContext:
        """Return the client context. Raises OSError for files that are missing or unusable."""
        context = ssl.create_default_context(cafile=str(self.authority))
        context.load_cert_chain(self.certificate, self.key)
        return context


def agent_url(node: Obj) -> str:
    """Return the URL of the node agent. Raises InternalError when the node reports none."""
    status, name = node.get("status", {}), node["metadata"]["name"]
    by_type = {
        address_entry["type"]: address_entry["address"]
        for address_entry in reversed(status.get("addresses", ()))
    }
    address = by_type.get("InternalIP") or by_type.get("ExternalIP") or by_type.get("Hostname")
    port = status.get("daemonEndpoints", {}).get("kubeletEndpoint", {}).get("Port", 0)
    if not address:
        raise InternalError.of(f"no preferred addresses found; known addresses: {list(by_type)}")
    if not port:
        raise InternalError.of(
            f"the agent of node {name!r} has no endpoint (status.daemonEndpoints is empty)"
        )
    host = f"[{address}]" if ":" in address else address
    return f"https://{host}:{port}"
