"""API objects reduced to the fields that controllers read.

Every pod, node and lease of the cluster stays in memory, so these structs omit what no controller
reads: volumes without claims, environments, images, probes.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import field
from msgspec.structs import force_setattr

from moorage.api.containers import ContainerPort
from moorage.api.meta import Object, ObjectMeta, Raw
from moorage.api.nodes import NodeCondition, Taint
from moorage.api.pods import NodeSelectorRequirement, PodCondition, PodIP, Toleration
from moorage.api.volumes import EphemeralVolumeSource, PersistentVolumeClaimVolumeSource
from moorage.wire.client.resources import PERSISTENT_VOLUME_CLAIMS, PartialObject, Resource


class Container(Object, frozen=True):
    name: str = ""
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str | None = None


class NodeSelectorTerm(Object, frozen=True):
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(Object, frozen=True):
    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class NodeAffinity(Object, frozen=True):
    required_during_scheduling_ignored_during_execution: NodeSelector | None = None


class Affinity(Object, frozen=True):
    node_affinity: NodeAffinity | None = None


class Volume(Object, frozen=True):
    name: str = ""
    persistent_volume_claim: PersistentVolumeClaimVolumeSource | None = None
    ephemeral: EphemeralVolumeSource | None = None


class PodSpec(Object, frozen=True):
    """A pod's specification; of its volumes only those with claims are kept, without templates."""

    volumes: tuple[Volume, ...] = ()
    node_name: str = ""
    runtime_class_name: str | None = None
    affinity: Affinity | None = None
    hostname: str = ""
    subdomain: str = ""
    tolerations: tuple[Toleration, ...] = ()
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()

    @property
    def serving(self) -> tuple[Container, ...]:
        """The containers that run while the pod serves. Source: `podutils.FindPort`."""
        sidecars = (one for one in self.init_containers if one.restart_policy == "Always")
        return (*self.containers, *sidecars)

    def __post_init__(self) -> None:
        if self.volumes:
            force_setattr(self, "volumes", tuple(_claiming(self.volumes)))


def _claiming(volumes: tuple[Volume, ...]) -> Iterator[Volume]:
    for volume in volumes:
        if volume.ephemeral is not None:
            yield Volume(name=volume.name, ephemeral=EphemeralVolumeSource())
        elif volume.persistent_volume_claim is not None:
            yield volume


class ContainerStateTerminated(Object, frozen=True):
    exit_code: int = 0
    finished_at: str | None = None


class ContainerState(Object, frozen=True):
    terminated: ContainerStateTerminated | None = None


class ContainerStatus(Object, frozen=True):
    name: str = ""
    restart_count: int = 0
    state: ContainerState = ContainerState()


class PodStatus(Object, frozen=True):
    phase: str = ""
    reason: str = ""
    conditions: tuple[PodCondition, ...] = ()
    pod_ip: str = field(default="", name="podIP")
    pod_ips: tuple[PodIP, ...] = field(default=(), name="podIPs")
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class NodeSpec(Object, frozen=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class RuntimeHandler(Object, frozen=True):
    name: str = ""


class NodeStatus(Object, frozen=True):
    conditions: tuple[NodeCondition, ...] = ()
    runtime_handlers: tuple[RuntimeHandler, ...] = ()


class Node(Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class LeaseSpec(Object, frozen=True):
    renew_time: str | None = None


class Lease(Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: LeaseSpec = LeaseSpec()


class EndpointSlice(Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    address_type: str = ""
    endpoints: tuple[Raw, ...] = ()
    ports: tuple[Raw, ...] = ()


PODS = Resource("", "v1", "pods", "Pod", Pod)
NODES = Resource("", "v1", "nodes", "Node", Node, is_namespaced=False)
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease", Lease)
CLAIMS = PERSISTENT_VOLUME_CLAIMS
ATTRIBUTES_CLASSES = Resource(
    "storage.k8s.io", "v1", "volumeattributesclasses", "VolumeAttributesClass", PartialObject,
    is_namespaced=False,
)  # fmt: skip
POD_CERTIFICATE_REQUESTS = Resource(
    "certificates.k8s.io", "v1", "podcertificaterequests", "PodCertificateRequest", PartialObject
)
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount", PartialObject)
ENDPOINT_SLICES = Resource(
    "discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", EndpointSlice
)
