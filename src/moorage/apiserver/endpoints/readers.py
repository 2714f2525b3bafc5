"""Readers: typed views of the server's own copy, for admission and authorization."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence

import msgspec

from moorage.api.configuration import Secret, ServiceAccount
from moorage.api.errors import NotFoundError
from moorage.api.ingress_classes import IngressClass
from moorage.api.names import Namespace
from moorage.api.nodes import Node
from moorage.api.persistent_volumes import PersistentVolume, PersistentVolumeClaim, StorageClass
from moorage.api.pods import Pod, PriorityClass
from moorage.api.quotas import LimitRange, ResourceQuota
from moorage.api.rbac import ClusterRole, ClusterRoleBinding, Role, RoleBinding
from moorage.api.runtime_group import RuntimeClass
from moorage.api.services import DEFAULT_NAME, IPAddress, Service, ServiceCIDR
from moorage.apiserver.registry.kind import Kind, Obj
from moorage.apiserver.registry.kinds.core import NAMESPACE, SECRET, SERVICE_ACCOUNT
from moorage.apiserver.registry.kinds.ingress import INGRESS_CLASS
from moorage.apiserver.registry.kinds.networking import IP_ADDRESS, SERVICE_CIDR
from moorage.apiserver.registry.kinds.node import NODE
from moorage.apiserver.registry.kinds.persistentvolume import PERSISTENT_VOLUME
from moorage.apiserver.registry.kinds.persistentvolumeclaim import PERSISTENT_VOLUME_CLAIM
from moorage.apiserver.registry.kinds.pod import POD
from moorage.apiserver.registry.kinds.podcertificaterequest import POD_CERTIFICATE_REQUEST
from moorage.apiserver.registry.kinds.priorityclass import PRIORITY_CLASS
from moorage.apiserver.registry.kinds.quotas import LIMIT_RANGE, RESOURCE_QUOTA
from moorage.apiserver.registry.kinds.rbac import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    ROLE,
    ROLE_BINDING,
)
from moorage.apiserver.registry.kinds.resourceslice import RESOURCE_SLICE
from moorage.apiserver.registry.kinds.runtimeclass import RUNTIME_CLASS
from moorage.apiserver.registry.kinds.service import SERVICE
from moorage.apiserver.registry.kinds.storage import STORAGE_CLASS, VOLUME_ATTACHMENT
from moorage.apiserver.registry.stored import Stored
from moorage.apiserver.registry.typed import TypedReader
from moorage.apiserver.storage import WatchCache

_NODE_NAME_FIELD = 0
_NAMING_NODES = {
    kind.plural: kind for kind in (VOLUME_ATTACHMENT, RESOURCE_SLICE, POD_CERTIFICATE_REQUEST)
}


class Readers:
    """Typed views of the cache for admission and authorization."""

    def __init__(self, cache: WatchCache[Stored]) -> None:
        self._cache = cache
        self.namespaces = TypedReader(cache, NAMESPACE, Namespace)
        self.accounts = TypedReader(cache, SERVICE_ACCOUNT, ServiceAccount)
        self.services = TypedReader(cache, SERVICE, Service)
        self._service_cidrs = TypedReader(cache, SERVICE_CIDR, ServiceCIDR)
        self._addresses = TypedReader(cache, IP_ADDRESS, IPAddress)
        self.nodes = TypedReader(cache, NODE, Node)
        self.classes = TypedReader(cache, RUNTIME_CLASS, RuntimeClass)
        self.priorities = TypedReader(cache, PRIORITY_CLASS, PriorityClass)
        self.ingress_classes = TypedReader(cache, INGRESS_CLASS, IngressClass)
        self.storage_classes = TypedReader(cache, STORAGE_CLASS, StorageClass)
        self.limit_ranges = TypedReader(cache, LIMIT_RANGE, LimitRange)
        self._quotas = TypedReader(cache, RESOURCE_QUOTA, ResourceQuota)
        self.roles = TypedReader(cache, ROLE, Role)
        self.role_bindings = TypedReader(cache, ROLE_BINDING, RoleBinding)
        self.cluster_roles = TypedReader(cache, CLUSTER_ROLE, ClusterRole)
        self.cluster_role_bindings = TypedReader(cache, CLUSTER_ROLE_BINDING, ClusterRoleBinding)
        self.claims = TypedReader(cache, PERSISTENT_VOLUME_CLAIM, PersistentVolumeClaim)
        self.volumes = TypedReader(cache, PERSISTENT_VOLUME, PersistentVolume)
        self._pods = TypedReader(cache, POD, Pod)
        self._by_plural = {kind.plural: kind for kind in bindable_kinds().values()}
        self._by_plural[SERVICE_ACCOUNT.plural] = SERVICE_ACCOUNT

    def find(self, kind: Kind, namespace: str, name: str) -> Stored | None:
        return self._cache.get(kind.key(namespace, name))

    def get(self, kind: Kind, namespace: str, name: str) -> Stored:
        """Return an object. Raises NotFoundError."""
        item = self.find(kind, namespace, name)
        if item is None:
            raise NotFoundError.of(kind.plural, name, group=kind.group)
        return item

    def scan(self, kind: Kind, namespace: str) -> Sequence[Stored]:
        """Return the objects of a namespace, of all for `""`."""
        return self._cache.scan(kind.prefix(namespace))

    def find_namespace(self, name: str) -> Obj | None:
        item = self._cache.get(NAMESPACE.key("", name))
        return None if item is None else item.obj

    def secret(self, namespace: str, name: str) -> Secret | None:
        item = self.find(SECRET, namespace, name)
        return None if item is None else msgspec.convert(item.obj, Secret)

    def service_networks(self) -> list[ipaddress.IPv4Network]:
        """Return the IPv4 networks of cluster IPs, the cluster's own first."""
        usable = [cidr for cidr in self._service_cidrs.all() if cidr.is_usable]
        usable.sort(key=lambda cidr: cidr.metadata.name != DEFAULT_NAME)
        networks = [network for cidr in usable for network in cidr.networks]
        return [network for network in networks if isinstance(network, ipaddress.IPv4Network)]

    def claimed_addresses(self) -> list[str]:
        """Return the addresses that others than services have."""
        return [one.metadata.name for one in self._addresses.all() if not one.is_managed]

    def quotas_of(self, namespace: str) -> list[ResourceQuota]:
        return list(self._quotas.all(namespace))

    def namespace_labels(self, name: str) -> dict[str, str]:
        namespace = self.namespaces.get(name)
        return {} if namespace is None else namespace.metadata.labels

    def find_pod(self, name: str, namespace: str) -> Pod | None:
        return self._pods.get(name, namespace)

    def stored_pods(self, namespace: str) -> Sequence[Stored]:
        return self.scan(POD, namespace)

    def pods_of_node(self, node_name: str, namespace: str) -> Iterable[Pod]:
        for item in self._cache.scan(POD.prefix(namespace)):
            if item.fields[_NODE_NAME_FIELD] == node_name:
                pod = self._pods.get(item.name, item.namespace)
                if pod is not None:
                    yield pod

    def node_of(self, plural: str, namespace: str, name: str) -> str | None:
        """Return `spec.nodeName` of an object of the kinds that have it, None without one."""
        item = self.find(_NAMING_NODES[plural], namespace, name)
        return None if item is None else item.obj["spec"].get("nodeName")

    def uid_of(self, plural: str, namespace: str, name: str) -> str | None:
        item = self._cache.get(self._by_plural[plural].key(namespace, name))
        return None if item is None else str(item.obj["metadata"]["uid"])


def bindable_kinds() -> dict[str, Kind]:
    """Return the kinds that tokens may be bound to, by name."""
    return {kind.name: kind for kind in (POD, SECRET, NODE)}
