"""API server assembly: creates the components and wires them.

Dependencies are passed as arguments here; no other module of the package creates its own
collaborators.
"""

from __future__ import annotations

import asyncio
import ipaddress
import operator
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from aiohttp import web

from moorage.api.clock import Clock
from moorage.api.host_ports import Listener
from moorage.api.missing_network import NOTHING
from moorage.api.quotas import ResourceQuota
from moorage.api.runtime_group import RuntimeClassQuota
from moorage.apiserver.admission.configuration import AdmissionOptions
from moorage.apiserver.admission.runtime_policies.sources import CLASS_QUOTAS, CustomReader
from moorage.apiserver.aggregation import (
    Availability,
    Backends,
    ExtensionDiscovery,
    ExtensionDocuments,
    ExtensionProxy,
    Extensions,
    ExtensionSwagger,
    FrontProxy,
    LocalServices,
)
from moorage.apiserver.audit import (
    AuditEvents,
    AuditLog,
    AuditPolicy,
    RecordedObjects,
    audit_families,
)
from moorage.apiserver.authentication import Authenticator, TokenSigner, TokenVerifier
from moorage.apiserver.authentication.authenticator import BootstrapTokens, StaticToken
from moorage.apiserver.authorization import Authorizer, NodeAuthorizer
from moorage.apiserver.cel.evaluator import Evaluator
from moorage.apiserver.endpoints.bodies import BodyDecoder, BodyLimits
from moorage.apiserver.endpoints.component_statuses import ComponentStatuses
from moorage.apiserver.endpoints.connect import Connect
from moorage.apiserver.endpoints.discovery import DiscoveryHandler
from moorage.apiserver.endpoints.node_agents import NodeTls
from moorage.apiserver.endpoints.openapi import IssuerPages, OpenApiPages
from moorage.apiserver.endpoints.patching import Patcher
from moorage.apiserver.endpoints.proxy import Proxy
from moorage.apiserver.endpoints.proxy.backends import service_authority
from moorage.apiserver.endpoints.readers import Readers, bindable_kinds
from moorage.apiserver.endpoints.replies import Reply, ReplyLimits
from moorage.apiserver.endpoints.resource_metrics import ResourceMetrics
from moorage.apiserver.endpoints.resources import Resources
from moorage.apiserver.endpoints.reviews import Reviews
from moorage.apiserver.endpoints.routing import NO_VERB, group_version_of, is_stream
from moorage.apiserver.endpoints.subresources import (
    BindingSubresource,
    EvictionSubresource,
    ScaleSubresource,
    TokenSubresource,
)
from moorage.apiserver.endpoints.watch import WatchStreams, WatchTimes
from moorage.apiserver.flow_control import (
    SEATS,
    FlowControl,
    FlowDumps,
    FlowKeeper,
    flow_control_families,
)
from moorage.apiserver.registry.codec import Codec
from moorage.apiserver.registry.custom.openapi import CustomDocuments
from moorage.apiserver.registry.custom.swagger import Swagger
from moorage.apiserver.registry.kind import Kind
from moorage.apiserver.registry.kinds import ALL_KINDS, STORED_KINDS
from moorage.apiserver.registry.kinds.customresourcedefinition import CUSTOM_RESOURCE_DEFINITION
from moorage.apiserver.registry.kinds.rbac import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    ROLE,
    ROLE_BINDING,
)
from moorage.apiserver.registry.kinds.unstored import (
    BINDING,
    COMPONENT_STATUS,
    NODE_METRICS,
    POD_METRICS,
    REVIEWS,
)
from moorage.apiserver.registry.listing import Lister
from moorage.apiserver.registry.objects import UNREAD_VERB, MayDeleteUnread, Objects
from moorage.apiserver.registry.openapi import Documents
from moorage.apiserver.registry.ownership import Ownership
from moorage.apiserver.registry.rbac import Action, RuleResolver
from moorage.apiserver.registry.request import User
from moorage.apiserver.registry.resource_map import ResourceMap
from moorage.apiserver.registry.schema import load_schema
from moorage.apiserver.registry.stored import Stored, StoredFactory
from moorage.apiserver.registry.worker import Worker
from moorage.apiserver.server.admission_plugins import AdmissionPlugins
from moorage.apiserver.server.custom_resources import CustomResources
from moorage.apiserver.server.handler import Answer, Elsewhere, Foreign, Handler, Page, Subresources
from moorage.apiserver.server.own_endpoints import (
    Health,
    MetricsPage,
    storage_families,
    version_reply,
)
from moorage.apiserver.server.pki import load_signing_key
from moorage.apiserver.server.quick_reads import QuickReads
from moorage.apiserver.server.quota_status import write_class_quota_used, write_quota_used
from moorage.apiserver.server.request_deadlines import CallLimits, RequestLimits
from moorage.apiserver.server.served_requests import ServedRequests
from moorage.apiserver.server.token_uses import TokenUses
from moorage.apiserver.server.web_page import WebPage
from moorage.apiserver.storage import Change, Store, WatchCache
from moorage.wire.serving import AtOnce
from moorage.wire.webhooks import WebhookClient

RUNTIME_CLASS_GATE = "RuntimeClass"
_NODE_NAME_FIELD = 0
_RBAC_TABLES = tuple(
    f"{kind.table}/" for kind in (ROLE, ROLE_BINDING, CLUSTER_ROLE, CLUSTER_ROLE_BINDING)
)


class ApiOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of an API server. Paths are of PEM files.

    `public_url` is the URL of the server for pods; `node_tls` the credentials for node agents,
    `front_proxy` those for extension servers;
    `listeners` the ports of this host that pods may not claim; `components` the ports of the health
    of ComponentStatuses, by name. What `audit_policy` selects is recorded in the file `audit_log`;
    without both nothing is. `admission` are the options of plugins. `missing_network`:
    warn of these kinds, which nothing implements, by plural. `seats` are
    divided among the priority levels.
    """

    signing_key: Path
    issuer: str
    public_url: str
    service_network: ipaddress.IPv4Network
    node_tls: NodeTls
    front_proxy: FrontProxy
    audit_policy: AuditPolicy | None = None
    audit_log: Path | None = None
    admission: AdmissionOptions = AdmissionOptions()
    static_tokens: tuple[StaticToken, ...] = ()
    allows_anonymous: bool = False
    listeners: tuple[Listener, ...] = ()
    components: Mapping[str, int] = {}
    gates: Mapping[str, bool] | None = None
    missing_network: frozenset[str] = NOTHING
    seats: int = SEATS
    bodies: BodyLimits = msgspec.field(default_factory=BodyLimits)
    request_limits: RequestLimits = msgspec.field(default_factory=RequestLimits)
    call_limits: CallLimits = CallLimits()
    reply_limits: ReplyLimits = ReplyLimits()
    watch_times: WatchTimes = WatchTimes()
    find_service: Callable[[Readers, str, str, int], str] = service_authority
    """Returns host and port of a service's port for webhooks and extension servers."""

    def is_enabled(self, gate: str) -> bool:
        """Return whether a feature gate is on; all are by default."""
        return (self.gates or {}).get(gate, True)


class Api(msgspec.Struct, frozen=True):
    """A wired API server: listeners call `handler`, bootstrap creates through `objects`."""

    handler: Handler
    objects: Objects
    cache: WatchCache[Stored]
    connect: Connect
    proxy: Proxy
    resource_metrics: ResourceMetrics
    components: ComponentStatuses
    worker: Worker
    evaluator: Evaluator
    webhooks: WebhookClient
    custom: CustomResources
    aggregation: Aggregation
    token_uses: TokenUses
    flows: FlowKeeper
    audit: AuditEvents | None
    at_once: AtOnce | None
    """Answers what it can without the handler; for the server's connections."""
    ready: set[str]
    """Names of the conditions that are ready; `/readyz` requires `READINESS`."""


class Aggregation(msgspec.Struct, frozen=True):
    """The parts of aggregation that run beside the handler."""

    backends: Backends
    discovery: ExtensionDiscovery
    availability: Availability
    local: LocalServices
    front_proxy: FrontProxy

    async def run(self) -> None:
        """Follow the extension servers until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.discovery.run())
            tasks.create_task(self.availability.run())
            tasks.create_task(self.local.run())


READINESS = ("bootstrap",)


def assemble(store: Store, options: ApiOptions, clock: Clock) -> Api:
    """Wire an API server on an open store. Call `Api.cache.load()` before any request."""
    factory = StoredFactory(STORED_KINDS)
    cache: WatchCache[Stored] = WatchCache(store, factory)
    codec = Codec(load_schema())
    worker = Worker()
    evaluator = Evaluator()
    readers = Readers(cache)
    resolver = RuleResolver(
        readers.roles, readers.role_bindings, readers.cluster_roles, readers.cluster_role_bindings
    )
    authorizer = Authorizer(
        resolver,
        NodeAuthorizer(
            readers.pods_of_node, readers.claims.get, readers.volumes.get, readers.node_of
        ),
    )
    store.listen(_forget_on_change(authorizer))
    signing_key = load_signing_key(options.signing_key)
    signer = TokenSigner(signing_key, options.issuer, (options.issuer,), clock)
    token_uses = TokenUses(readers.secret, clock)
    verifier = TokenVerifier(
        signer.public_key,
        options.issuer,
        signer.audiences,
        readers.uid_of,
        clock,
        token_uses.is_usable,
        token_uses.find_token,
    )
    authenticator = Authenticator(
        static_tokens=options.static_tokens,
        verifier=verifier,
        bootstrap_tokens=BootstrapTokens(partial(readers.secret, "kube-system"), clock),
        allows_anonymous=options.allows_anonymous,
        clock=clock,
    )
    ownership = Ownership(codec, clock)
    resource_map = ResourceMap(ALL_KINDS)

    async def write_used(quota: ResourceQuota, used: dict[str, str]) -> None:
        await write_quota_used(objects, quota, used)

    class_quotas = CustomReader(cache, resource_map, CLASS_QUOTAS, RuntimeClassQuota)

    async def write_class_used(quota: RuntimeClassQuota, used: dict[str, str]) -> None:
        await write_class_quota_used(objects, class_quotas.kind, quota, used)

    calls = options.call_limits
    resolve = partial(options.find_service, readers)
    webhooks = WebhookClient(resolve, most_bytes=calls.answer_bytes)
    backends = Backends(options.front_proxy, resolve)
    extensions = Extensions(cache, resource_map)
    extension_documents = ExtensionDocuments(backends)
    extension_swagger = ExtensionSwagger(backends, extensions, clock)
    discovery = ExtensionDiscovery(extensions, backends, extension_documents, clock)
    admission = AdmissionPlugins(
        store=store,
        cache=cache,
        readers=readers,
        resolver=resolver,
        authorizer=authorizer,
        evaluator=evaluator,
        webhooks=webhooks,
        codec=codec,
        merge_schema=ownership.merge_schema,
        worker=worker,
        resource_map=resource_map,
        write_used=write_used,
        class_quotas=class_quotas,
        write_class_used=write_class_used,
        clock=clock,
        listeners=options.listeners,
        has_runtime_classes=options.is_enabled(RUNTIME_CLASS_GATE),
        missing_network=options.missing_network,
        options=options.admission,
        webhooks_s=calls.webhooks_s,
    ).chain()
    objects = Objects(
        store=store,
        cache=cache,
        factory=factory,
        ownership=ownership,
        admission=admission,
        clock=clock,
        may_delete_unread=_may_delete_unread(authorizer),
        worker=worker,
        evaluator=evaluator,
    )
    patcher = Patcher(codec, worker, objects, ownership)
    decoder = BodyDecoder(codec, worker)
    connect = Connect(objects, admission, options.node_tls)
    proxy = Proxy(objects, admission, options.node_tls)
    resource_metrics = ResourceMetrics(readers, options.node_tls, clock)
    ready: set[str] = set()
    flow_control = FlowControl(cache, clock, options.seats)
    keeper = FlowKeeper(objects, flow_control, clock)
    store.listen(flow_control.changed)
    store.listen(keeper.changed)
    requests = ServedRequests(resource_map, clock)
    resource_map.listen(requests.forget_unserved)
    audit = _audit(options, codec, clock)
    quick_reads = QuickReads(
        resource_map=resource_map,
        authenticator=authenticator,
        authorizer=authorizer,
        flow_control=flow_control,
        requests=requests,
        cache=cache,
        codec=codec,
        is_elsewhere=lambda target: extensions.find(target.group, target.version) is not None,
        clock=clock,
    )
    handler = Handler(
        requests=requests,
        quick_reads=quick_reads,
        audit=audit,
        to_protobuf=codec.to_protobuf,
        resource_map=resource_map,
        authenticator=authenticator,
        authorizer=authorizer,
        resources=(
            resources := Resources(
                codec, decoder, worker, objects, Lister(store, cache, factory), patcher
            )
        ),
        watches=WatchStreams(cache, codec, clock, store.identity, options.watch_times),
        unstored=_unstored(
            Reviews(decoder, authenticator, authorizer, resolver, clock),
            resource_metrics,
            bindings := BindingSubresource(decoder, objects, admission, clock),
            components := ComponentStatuses(options.components, clock),
        ),
        subresources=_subresources(
            resources,
            bindings,
            EvictionSubresource(decoder, objects, admission, clock),
            ScaleSubresource(decoder, objects, patcher, clock),
            TokenSubresource(decoder, objects, admission, signer, bindable_kinds()),
            connect,
            proxy,
        ),
        pages=[
            *_pages(
                ready,
                signer,
                options,
                resource_map,
                objects,
                discovery,
                extension_documents,
                extension_swagger,
            ),
            FlowDumps(flow_control),
            MetricsPage(
                requests,
                lambda: (
                    *storage_families(resource_map, cache),
                    *flow_control_families(flow_control),
                    *(() if audit is None else audit_families(audit.log)),
                ),
            ),
        ],
        flow_control=flow_control,
        bodies=options.bodies,
        limits=options.request_limits,
        replies=options.reply_limits,
        elsewhere=_elsewhere(
            extensions,
            ExtensionProxy(backends, answer_s=calls.extension_s),
            WebPage(resource_map, cache, authorizer),
        ),
    )
    aggregation = Aggregation(
        backends,
        discovery,
        Availability(objects, backends, clock),
        LocalServices(objects, resource_map),
        options.front_proxy,
    )
    for changed in (
        extensions.changed,
        discovery.changed,
        aggregation.availability.changed,
        aggregation.local.changed,
    ):
        store.listen(changed)
    custom = CustomResources(
        resource_map=resource_map,
        objects=objects,
        cache=cache,
        codec=codec,
        ownership=ownership,
        clock=clock,
        post=partial(webhooks.post, timeout_s=calls.conversion_s, announces_timeout=False),
        calls=calls,
    )
    store.listen(custom.on_changes)
    return Api(
        handler,
        objects,
        cache,
        connect,
        proxy,
        resource_metrics,
        components,
        worker,
        evaluator,
        webhooks,
        custom,
        aggregation,
        token_uses,
        keeper,
        audit,
        # Audit events are written in several steps.
        quick_reads.answer if audit is None else None,
        ready,
    )


def _audit(options: ApiOptions, codec: Codec, clock: Clock) -> AuditEvents | None:
    if options.audit_policy is None or options.audit_log is None:
        return None
    return AuditEvents(
        options.audit_policy, AuditLog(options.audit_log), RecordedObjects(codec), clock
    )


def _elsewhere(extensions: Extensions, proxy: ExtensionProxy, page: WebPage) -> Elsewhere:
    def passed_on(request: Foreign) -> Callable[[], Awaitable[Reply | web.StreamResponse]] | None:
        if not request.target.is_resource and (answer := page(request)) is not None:
            return answer
        extension = extensions.find(*group_version_of(request.target))
        if extension is None:
            return None
        return partial(
            proxy.answer,
            request.http,
            request.user,
            extension,
            request.share,
            request.audit_id,
            is_stream=is_stream(request.verb, request.target.subresource),
        )

    return passed_on


def _may_delete_unread(authorizer: Authorizer) -> MayDeleteUnread:
    def may_delete(user: User, kind: Kind, namespace: str, name: str) -> bool:
        action = Action(
            verb=UNREAD_VERB,
            group=kind.group,
            resource=kind.plural,
            namespace=namespace,
            name=name,
        )
        return authorizer.is_allowed(user, action)

    return may_delete


def _forget_on_change(authorizer: Authorizer):  # type: ignore[no-untyped-def]
    def listen(changes: list[Change]) -> None:
        if any(change.key.startswith(_RBAC_TABLES) for change in changes):
            authorizer.forget()

    return listen


def _subresources(
    resources: Resources,
    bindings: BindingSubresource,
    evictions: EvictionSubresource,
    scale: ScaleSubresource,
    tokens: TokenSubresource,
    connect: Connect,
    proxy: Proxy,
) -> Subresources:
    def update_as(subresource: str):  # type: ignore[no-untyped-def]
        return lambda call: resources.update(call, subresource)

    def patch_as(subresource: str):  # type: ignore[no-untyped-def]
        return lambda call: resources.patch(call, subresource)

    own = {
        ("pods", "binding", "create"): bindings.create,
        ("pods", "eviction", "create"): evictions.create,
        ("pods", "log", "get"): connect.log,
        ("namespaces", "finalize", "update"): update_as("finalize"),
        ("serviceaccounts", "token", "create"): tokens.create,
        ("certificatesigningrequests", "approval", "get"): resources.get,
        ("certificatesigningrequests", "approval", "update"): update_as("approval"),
        ("certificatesigningrequests", "approval", "patch"): patch_as("approval"),
    }
    for part in ("ephemeralcontainers", "resize"):
        own["pods", part, "get"] = resources.get
        own["pods", part, "update"] = update_as(part)
        own["pods", part, "patch"] = patch_as(part)
    for stream in ("exec", "attach", "portforward"):
        for verb in ("get", "create"):
            own["pods", stream, verb] = connect.stream
    shared = {
        **{
            ("proxy", verb): proxy.answer
            for verb in (NO_VERB, "create", "delete", "get", "patch", "update")
        },
        ("status", "get"): resources.get,
        ("status", "update"): update_as("status"),
        ("status", "patch"): patch_as("status"),
        ("scale", "get"): scale.get,
        ("scale", "update"): scale.update,
        ("scale", "patch"): scale.patch,
    }
    return Subresources(own, shared)


def _unstored(
    reviews: Reviews,
    metrics: ResourceMetrics,
    bindings: BindingSubresource,
    components: ComponentStatuses,
) -> dict[str, dict[str, Answer]]:
    return {
        BINDING.resource: {"create": bindings.create},
        COMPONENT_STATUS.resource: {"get": components.get, "list": components.list},
        **{kind.resource: {"create": reviews.create} for kind in REVIEWS},
        NODE_METRICS.resource: {"get": metrics.get_node, "list": metrics.list_nodes},
        POD_METRICS.resource: {"get": metrics.get_pod, "list": metrics.list_pods},
    }


def _pages(
    ready: set[str],
    signer: TokenSigner,
    options: ApiOptions,
    resource_map: ResourceMap,
    objects: Objects,
    discovery: ExtensionDiscovery,
    extension_documents: ExtensionDocuments,
    extension_swagger: ExtensionSwagger,
) -> list[Page]:
    documents = Documents()
    find = partial(objects.find, CUSTOM_RESOURCE_DEFINITION, "")
    custom = CustomDocuments(resource_map, find, documents)
    health = Health(
        live={"ping": lambda: True},
        ready={name: partial(operator.contains, ready, name) for name in READINESS},
    )
    return [
        lambda http: health.reply(http.path, http.query),
        lambda http: version_reply() if http.path.rstrip("/") == "/version" else None,
        DiscoveryHandler(resource_map, urlsplit(options.public_url).netloc, discovery.versions),
        OpenApiPages(
            documents,
            custom.by_path,
            Swagger(documents, custom, extension_swagger.parts),
            foreign=extension_documents,
        ),
        IssuerPages(signer, options.public_url),
    ]
