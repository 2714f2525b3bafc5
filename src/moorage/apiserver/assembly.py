"""API server assembly: creates the components and wires them.

Dependencies are passed as arguments here; no other module of the package creates its own
collaborators.
"""

from __future__ import annotations

import ipaddress
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from moorage.admission.chain import AdmissionChain, Plugin
from moorage.admission.default_tolerations import DefaultTolerationSeconds
from moorage.admission.host_ports import HostPortAdmission
from moorage.admission.namespaces import NamespaceLifecycle
from moorage.admission.node_restriction import NodeRestriction
from moorage.admission.policies import ValidatingPolicies
from moorage.admission.policies.sources import CachedParams, CachedPolicies
from moorage.admission.priority import PriorityAdmission
from moorage.admission.rbac_escalation import RbacEscalation
from moorage.admission.runtime_class import RuntimeClassAdmission
from moorage.admission.service_account import ServiceAccountAdmission
from moorage.admission.service_addresses import ServiceAddresses
from moorage.admission.taint_nodes import TaintNewNodes
from moorage.api.clock import Clock
from moorage.api.configuration import ServiceAccount
from moorage.api.host_ports import Listener
from moorage.api.namespaces import Namespace
from moorage.api.nodes import Node
from moorage.api.pods import Pod
from moorage.api.priorities import PriorityClass
from moorage.api.rbac import ClusterRole, ClusterRoleBinding, Role, RoleBinding
from moorage.api.runtime_classes import RuntimeClass
from moorage.api.services import Service
from moorage.apiserver.authentication import Authenticator, TokenSigner, TokenVerifier
from moorage.apiserver.authentication.authenticator import StaticToken
from moorage.apiserver.authorization import Authorizer, NodeAuthorizer
from moorage.apiserver.bodies import BodyLimits
from moorage.apiserver.connect import Connect
from moorage.apiserver.custom_resources import CustomResources
from moorage.apiserver.decoding import BodyDecoder
from moorage.apiserver.discovery import DiscoveryHandler
from moorage.apiserver.handler import Handler, Page, Subresources
from moorage.apiserver.health import Health, version_reply
from moorage.apiserver.node_agents import NodeTls
from moorage.apiserver.oidc import IssuerPages
from moorage.apiserver.openapi import OpenApiPages
from moorage.apiserver.patching import Patcher
from moorage.apiserver.pki import load_signing_key
from moorage.apiserver.proxy import Proxy
from moorage.apiserver.resources import Resources
from moorage.apiserver.reviews import Reviews
from moorage.apiserver.slots import SlotLimits
from moorage.apiserver.subresources import PodSubresources, ScaleSubresource, TokenSubresource
from moorage.apiserver.watch import WatchStreams
from moorage.cel.evaluator import Evaluator
from moorage.registry.codec import Codec
from moorage.registry.custom.openapi import CustomDocuments
from moorage.registry.kind import Kind, Obj
from moorage.registry.kinds import ALL_KINDS, STORED_KINDS
from moorage.registry.kinds.clusterrole import CLUSTER_ROLE
from moorage.registry.kinds.clusterrolebinding import CLUSTER_ROLE_BINDING
from moorage.registry.kinds.customresourcedefinition import CUSTOM_RESOURCE_DEFINITION
from moorage.registry.kinds.namespace import NAMESPACE
from moorage.registry.kinds.node import NODE
from moorage.registry.kinds.pod import POD
from moorage.registry.kinds.priorityclass import PRIORITY_CLASS
from moorage.registry.kinds.role import ROLE
from moorage.registry.kinds.rolebinding import ROLE_BINDING
from moorage.registry.kinds.runtimeclass import RUNTIME_CLASS
from moorage.registry.kinds.secret import SECRET
from moorage.registry.kinds.service import SERVICE
from moorage.registry.kinds.serviceaccount import SERVICE_ACCOUNT
from moorage.registry.listing import Lister
from moorage.registry.objects import UNREAD_VERB, MayDeleteUnread, Objects
from moorage.registry.openapi import Documents
from moorage.registry.ownership import Ownership
from moorage.registry.rbac import Action, RuleResolver
from moorage.registry.request import User
from moorage.registry.resource_map import ResourceMap
from moorage.registry.schema import load_schema
from moorage.registry.stored import Stored, StoredFactory
from moorage.registry.typed import TypedReader
from moorage.registry.worker import Worker
from moorage.storage import Change, Store, WatchCache

RUNTIME_CLASS_GATE = "RuntimeClass"
_NODE_NAME_FIELD = 0
_RBAC_TABLES = tuple(
    f"{kind.table}/" for kind in (ROLE, ROLE_BINDING, CLUSTER_ROLE, CLUSTER_ROLE_BINDING)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiOptions:
    """Options of an API server. Paths are of PEM files.

    `public_url` is the URL of the server for pods; `node_tls` the credentials for node agents;
    `listeners` the ports of this host that pods may not claim.
    """

    signing_key: Path
    issuer: str
    public_url: str
    service_network: ipaddress.IPv4Network
    node_tls: NodeTls
    static_tokens: tuple[StaticToken, ...] = ()
    allows_anonymous: bool = False
    listeners: tuple[Listener, ...] = ()
    gates: Mapping[str, bool] | None = None
    slots: SlotLimits = field(default_factory=SlotLimits)
    bodies: BodyLimits = field(default_factory=BodyLimits)

    def is_enabled(self, gate: str) -> bool:
        """Return whether a feature gate is on; all are by default."""
        return (self.gates or {}).get(gate, True)


@dataclass(frozen=True, slots=True)
class Api:
    """A wired API server: listeners call `handler`, bootstrap creates through `objects`."""

    handler: Handler
    objects: Objects
    cache: WatchCache[Stored]
    connect: Connect
    proxy: Proxy
    worker: Worker
    evaluator: Evaluator
    custom: CustomResources
    ready: set[str]
    """Names of the conditions that are ready; `/readyz` requires `READINESS`."""


READINESS = ("bootstrap",)


def assemble(store: Store, options: ApiOptions, clock: Clock) -> Api:
    """Wire an API server on an open store. Call `Api.cache.load()` before any request."""
    factory = StoredFactory(STORED_KINDS)
    cache: WatchCache[Stored] = WatchCache(store, factory)
    codec = Codec(load_schema())
    worker = Worker()
    evaluator = Evaluator()
    readers = _Readers(cache)
    resolver = RuleResolver(
        readers.roles, readers.role_bindings, readers.cluster_roles, readers.cluster_role_bindings
    )
    authorizer = Authorizer(resolver, NodeAuthorizer(readers.pods_of_node))
    store.listen(_forget_on_change(authorizer))
    signing_key = load_signing_key(options.signing_key)
    signer = TokenSigner(signing_key, options.issuer, (options.issuer,), clock)
    verifier = TokenVerifier(
        signer.public_key, options.issuer, signer.audiences, readers.uid_of, clock
    )
    authenticator = Authenticator(
        static_tokens=options.static_tokens,
        verifier=verifier,
        allows_anonymous=options.allows_anonymous,
        clock=clock,
    )
    ownership = Ownership(codec, clock)
    resource_map = ResourceMap(ALL_KINDS)
    policies = CachedPolicies(cache)
    store.listen(policies.changed)
    admission = AdmissionChain(
        [
            *_plugins(options, readers, resolver, authorizer),
            ValidatingPolicies(
                policies, CachedParams(cache, resource_map), readers.find_namespace, evaluator
            ),
        ]
    )
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
    connect = Connect(objects, options.node_tls)
    proxy = Proxy(objects, options.node_tls)
    ready: set[str] = set()
    handler = Handler(
        resource_map=resource_map,
        authenticator=authenticator,
        authorizer=authorizer,
        resources=(
            resources := Resources(
                codec, decoder, worker, objects, Lister(store, cache, factory), patcher
            )
        ),
        watches=WatchStreams(cache, codec, clock, store.identity),
        reviews=Reviews(decoder, authenticator, authorizer, resolver, clock),
        subresources=_subresources(
            resources,
            PodSubresources(decoder, objects, clock),
            ScaleSubresource(decoder, objects, patcher),
            TokenSubresource(decoder, objects, admission, signer, _bindable()),
            connect,
            proxy,
        ),
        pages=_pages(ready, signer, options, resource_map, objects),
        slots=options.slots,
        bodies=options.bodies,
    )
    custom = CustomResources(
        resource_map=resource_map,
        objects=objects,
        cache=cache,
        codec=codec,
        ownership=ownership,
        clock=clock,
    )
    store.listen(custom.on_changes)
    return Api(handler, objects, cache, connect, proxy, worker, evaluator, custom, ready)


class _Readers:
    """Typed views of the cache for admission and authorization."""

    def __init__(self, cache: WatchCache[Stored]) -> None:
        self._cache = cache
        self.namespaces = TypedReader(cache, NAMESPACE, Namespace)
        self.accounts = TypedReader(cache, SERVICE_ACCOUNT, ServiceAccount)
        self.services = TypedReader(cache, SERVICE, Service)
        self.nodes = TypedReader(cache, NODE, Node)
        self.classes = TypedReader(cache, RUNTIME_CLASS, RuntimeClass)
        self.priorities = TypedReader(cache, PRIORITY_CLASS, PriorityClass)
        self.roles = TypedReader(cache, ROLE, Role)
        self.role_bindings = TypedReader(cache, ROLE_BINDING, RoleBinding)
        self.cluster_roles = TypedReader(cache, CLUSTER_ROLE, ClusterRole)
        self.cluster_role_bindings = TypedReader(cache, CLUSTER_ROLE_BINDING, ClusterRoleBinding)
        self._pods = TypedReader(cache, POD, Pod)
        self._by_plural = {kind.plural: kind for kind in _bindable().values()}
        self._by_plural[SERVICE_ACCOUNT.plural] = SERVICE_ACCOUNT

    def find_namespace(self, name: str) -> Obj | None:
        item = self._cache.get(NAMESPACE.key("", name))
        return None if item is None else item.obj

    def find_pod(self, name: str, namespace: str) -> Pod | None:
        return self._pods.get(name, namespace)

    def pods_of_node(self, node_name: str, namespace: str) -> Iterable[Pod]:
        for item in self._cache.scan(POD.prefix(namespace)):
            if item.fields[_NODE_NAME_FIELD] == node_name:
                pod = self._pods.get(item.name, item.namespace)
                if pod is not None:
                    yield pod

    def uid_of(self, plural: str, namespace: str, name: str) -> str | None:
        item = self._cache.get(self._by_plural[plural].key(namespace, name))
        return None if item is None else str(item.obj["metadata"]["uid"])


def _bindable() -> dict[str, Kind]:
    """Return the kinds that tokens may be bound to, by name."""
    return {kind.name: kind for kind in (POD, SECRET, NODE)}


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


def _plugins(
    options: ApiOptions,
    readers: _Readers,
    resolver: RuleResolver,
    authorizer: Authorizer,
) -> list[Plugin]:
    """Return the admission plugins in the order in which they run."""
    return [
        NamespaceLifecycle(readers.namespaces.get),
        ServiceAccountAdmission(readers.accounts.get),
        NodeRestriction(readers.find_pod, readers.nodes.get, authorizer.is_allowed),
        TaintNewNodes(),
        PriorityAdmission(readers.priorities.get, readers.priorities.all),
        DefaultTolerationSeconds(),
        RuntimeClassAdmission(
            readers.classes.get, is_enabled=options.is_enabled(RUNTIME_CLASS_GATE)
        ),
        ServiceAddresses(readers.services.all, options.service_network),
        HostPortAdmission(options.listeners, readers.nodes.all),
        RbacEscalation(resolver, authorizer.is_allowed),
    ]


def _subresources(
    resources: Resources,
    pods: PodSubresources,
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
        ("pods", "binding", "create"): pods.bind,
        ("pods", "eviction", "create"): pods.evict,
        ("pods", "log", "get"): connect.log,
        ("namespaces", "finalize", "update"): update_as("finalize"),
        ("serviceaccounts", "token", "create"): tokens.create,
        ("pods", "ephemeralcontainers", "get"): resources.get,
        ("pods", "ephemeralcontainers", "update"): update_as("ephemeralcontainers"),
        ("pods", "ephemeralcontainers", "patch"): patch_as("ephemeralcontainers"),
    }
    for stream in ("exec", "attach", "portforward"):
        for verb in ("get", "create"):
            own["pods", stream, verb] = connect.stream
    shared = {
        **{
            ("proxy", verb): proxy.answer for verb in ("create", "delete", "get", "patch", "update")
        },
        ("status", "get"): resources.get,
        ("status", "update"): update_as("status"),
        ("status", "patch"): patch_as("status"),
        ("scale", "get"): scale.get,
        ("scale", "update"): scale.update,
        ("scale", "patch"): scale.patch,
    }
    return Subresources(own, shared)


def _pages(
    ready: set[str],
    signer: TokenSigner,
    options: ApiOptions,
    resource_map: ResourceMap,
    objects: Objects,
) -> list[Page]:
    documents = Documents()
    find = partial(objects.find, CUSTOM_RESOURCE_DEFINITION, "")
    health = Health(
        live={"ping": lambda: True},
        ready={name: partial(operator.contains, ready, name) for name in READINESS},
    )
    return [
        lambda http: health.reply(http.path, http.query),
        lambda http: version_reply() if http.path.rstrip("/") == "/version" else None,
        DiscoveryHandler(resource_map, urlsplit(options.public_url).netloc),
        OpenApiPages(documents, CustomDocuments(resource_map, find, documents).by_path),
        IssuerPages(signer, options.public_url),
    ]
