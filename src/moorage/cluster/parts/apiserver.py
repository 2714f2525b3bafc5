"""The API server of a cluster."""

from __future__ import annotations

import ipaddress

from moorage.apiserver.assembly import ApiOptions
from moorage.apiserver.connect import NodeTls
from moorage.apiserver.server import ApiServer, ServerOptions
from moorage.cluster.credentials import Credentials
from moorage.cluster.layout import Layout
from moorage.cluster.names import ISSUER
from moorage.cluster.notify import notify_ready
from moorage.cluster.settings import Settings


async def run(layout: Layout, settings: Settings) -> None:
    """Serve until cancelled. Raises OSError for a port that is taken."""
    credentials = Credentials(layout)
    own, authority = credentials.api_server, credentials.authority.certificate
    node_client = credentials.node_client
    layout.database.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    options = ServerOptions(
        database=layout.database,
        certificate=own.certificate,
        key=own.key,
        client_ca=authority,
        addresses=settings.api_addresses,
        port=settings.api_port,
    )
    api_options = ApiOptions(
        signing_key=credentials.signing_key,
        issuer=ISSUER,
        public_url=f"https://{settings.pod_facing_address}:{settings.api_port}",
        service_network=ipaddress.IPv4Network(settings.service_network),
        node_tls=NodeTls(node_client.certificate, node_client.key, authority),
        gates=settings.gates,
    )
    async with ApiServer(options, api_options) as server:
        notify_ready()
        await server.run()
