"""API server of a cluster, as one of its parts."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from moorage.api.host_ports import Listener
from moorage.apiserver.admission.configuration import AdmissionOptions, load_configuration
from moorage.apiserver.admission.runtime_policies import RuntimePolicyAdmission, RuntimePolicyWrites
from moorage.apiserver.admission.runtime_policies.class_quotas import RuntimeClassQuotaAdmission
from moorage.apiserver.aggregation import FrontProxy
from moorage.apiserver.audit import load_policy
from moorage.apiserver.endpoints.node_agents import NodeTls
from moorage.apiserver.server.assembly import ApiOptions
from moorage.apiserver.server.lifecycle import ApiServer, ServerOptions
from moorage.cluster.access.credentials import Credentials
from moorage.cluster.layout import ISSUER, Layout
from moorage.cluster.settings import Settings
from moorage.cluster.supervision.readiness import notify_ready
from moorage.linux.descriptors import raise_descriptor_limit
from moorage.linux.trust import make_private
from moorage.wire.engine_ports import EngineProcess

if TYPE_CHECKING:
    from moorage.cluster.host import Inventory
    from moorage.cluster.network import PodNetwork

_RUNTIME_PLUGINS = frozenset(
    plugin.name
    for plugin in (RuntimePolicyAdmission, RuntimePolicyWrites, RuntimeClassQuotaAdmission)
)
"""Plugins that Kubernetes does not have."""


async def run(layout: Layout, settings: Settings) -> None:
    """Run the API server until cancelled. Raises OSError if its port is in use, PolicyError."""
    raise_descriptor_limit()
    make_private(layout.database.parent)
    options, api_options = options_of(layout, settings)
    async with protected_ports(layout, settings), ApiServer(options, api_options) as server:
        notify_ready()
        await server.run()


def options_of(layout: Layout, settings: Settings) -> tuple[ServerOptions, ApiOptions]:
    """Return the options of a cluster's API server. Raises PolicyError, ConfigurationError."""
    credentials = Credentials(layout)
    own, authority = credentials.api_server, credentials.authority.certificate
    node_client, front_proxy = credentials.node_client, credentials.front_proxy
    options = ServerOptions(
        database=layout.database,
        mark=layout.store_mark,
        certificate=own.certificate,
        key=own.key,
        client_ca=authority,
        addresses=settings.api_addresses,
        port=settings.api_port,
    )
    cri = settings.cri if settings.has_node else ""
    listeners = EngineProcess().listeners(cri, settings.node_ip)
    api_options = ApiOptions(
        signing_key=credentials.signing_key,
        issuer=ISSUER,
        public_url=f"https://{settings.pod_facing_address}:{settings.api_port}",
        service_network=ipaddress.IPv4Network(settings.service_network),
        node_tls=NodeTls(node_client.certificate, node_client.key, authority),
        front_proxy=FrontProxy(
            certificate=front_proxy.certificate,
            key=front_proxy.key,
            authority=credentials.front_proxy_authority.certificate,
            client_authority=authority,
        ),
        listeners=(*settings.listeners, *listeners),
        components={
            "controller-manager": settings.controllers_port,
            "scheduler": settings.scheduler_port,
        },
        gates=settings.gates,
        audit_policy=load_policy(Path(settings.audit_policy)) if settings.audit_policy else None,
        audit_log=layout.audit_log,
        admission=_admission(settings),
        missing_network=settings.missing_network,
    )
    return options, api_options


def _admission(settings: Settings) -> AdmissionOptions:
    path = settings.admission_configuration
    options = load_configuration(Path(path)) if path else AdmissionOptions()
    if settings.has_runtimes:
        return options
    return structs.replace(options, disabled=options.disabled | _RUNTIME_PLUGINS)


class HostRules:
    """The host's packet filter rules. Modules are imported at use: most API servers need none."""

    async def gather(self, root: Path) -> Inventory:
        from moorage.cluster.host import gather

        return await gather(root)

    async def protect(self, network: PodNetwork, host: Inventory, bridges: Sequence[str]) -> None:
        from moorage.cluster.network import protect

        await protect(network, host, bridges)

    async def unprotect(self, network: PodNetwork, host: Inventory) -> None:
        from moorage.cluster.network import unprotect

        await unprotect(network, host)


@asynccontextmanager
async def protected_ports(
    layout: Layout,
    settings: Settings,
    rules: HostRules | None = None,
    engine: EngineProcess | None = None,
) -> AsyncIterator[None]:
    """Keep host ports of other clusters' pods off the API server while it listens.

    With an external engine, that engine's ports too, and connections to service addresses, which
    nothing answers, are refused.

    With our own engine, the engine's part adds these rules with the others, and they stay with the
    pods. `moor down` removes the rules that a killed server leaves.
    """
    if settings.has_node and not settings.cri:
        yield
        return
    # Imported here: both are large and most API servers need neither.
    from moorage.cluster.engine.paths import engine_paths
    from moorage.cluster.network import pod_bridges, pod_network

    rules, engine = rules or HostRules(), engine or EngineProcess()
    network = pod_network(settings, engine_paths(layout, settings).leases)
    host = await rules.gather(layout.root)

    async def guard() -> None:
        bridges = pod_bridges() if settings.has_node else ()
        cri = settings.cri if settings.has_node else ""
        guarded = without_own_engine(network, settings, engine.listeners(cri, settings.node_ip))
        await rules.protect(guarded, host, bridges)

    await guard()
    following = asyncio.ensure_future(follow_engine(settings, guard, engine))
    try:
        yield
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await rules.unprotect(network, host)


def without_own_engine(
    network: PodNetwork, settings: Settings, engine: Iterable[Listener]
) -> PodNetwork:
    """Return the network that the API server protects: only a node has services to refuse."""
    services = network.services if settings.has_node else None
    return replace(network, listeners=(*settings.listeners, *engine), services=services)


async def follow_engine(
    settings: Settings, guard: Callable[[], Awaitable[None]], engine: EngineProcess
) -> None:
    """Update the rules each time the external engine restarts, which may change its ports."""
    if not settings.has_node or not settings.cri:
        return
    known_pid = engine.find(settings.cri)
    while True:
        await asyncio.sleep(engine.poll_s)
        pid = await asyncio.to_thread(engine.find, settings.cri)
        if pid is not None and pid != known_pid:
            known_pid = pid
            await guard()
