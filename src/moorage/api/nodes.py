"""Nodes: capacity, conditions, addresses and runtime handlers.

Source: core/v1 `Node`; `status.runtimeHandlers` is KEP-3857 and KEP-127.
"""

from __future__ import annotations

from msgspec import field

from moorage.api.meta import Object, ObjectMeta, Raw


class Taint(Object, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class NodeSpec(Object, frozen=True):
    pod_cidr: str = field(default="", name="podCIDR")
    pod_cidrs: tuple[str, ...] = field(default=(), name="podCIDRs")
    provider_id: str = field(default="", name="providerID")
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    config_source: Raw | None = None
    external_id: str = field(default="", name="externalID")


class NodeCondition(Object, frozen=True):
    type: str = ""
    status: str = ""
    last_heartbeat_time: str | None = None
    last_transition_time: str | None = None
    reason: str = ""
    message: str = ""


class NodeAddress(Object, frozen=True):
    type: str = ""
    address: str = ""


class DaemonEndpoint(Object, frozen=True):
    port: int = field(default=0, name="Port")


class NodeDaemonEndpoints(Object, frozen=True):
    kubelet_endpoint: DaemonEndpoint = DaemonEndpoint()


class NodeSwapStatus(Object, frozen=True):
    capacity: int | None = None


class NodeSystemInfo(Object, frozen=True):
    machine_id: str = field(default="", name="machineID")
    system_uuid: str = field(default="", name="systemUUID")
    boot_id: str = field(default="", name="bootID")
    kernel_version: str = ""
    os_image: str = ""
    container_runtime_version: str = ""
    kubelet_version: str = ""
    kube_proxy_version: str = ""
    operating_system: str = ""
    architecture: str = ""
    swap: NodeSwapStatus | None = None


class ContainerImage(Object, frozen=True):
    names: tuple[str, ...] = ()
    size_bytes: int = 0


class AttachedVolume(Object, frozen=True):
    name: str = ""
    device_path: str = ""


class NodeRuntimeHandlerFeatures(Object, frozen=True):
    recursive_read_only_mounts: bool | None = None
    user_namespaces: bool | None = None


class NodeRuntimeHandler(Object, frozen=True):
    name: str = ""
    features: NodeRuntimeHandlerFeatures | None = None


class NodeFeatures(Object, frozen=True):
    supplemental_groups_policy: bool | None = None


class NodeStatus(Object, frozen=True):
    capacity: dict[str, str] = {}
    allocatable: dict[str, str] = {}
    phase: str = ""
    conditions: tuple[NodeCondition, ...] = ()
    addresses: tuple[NodeAddress, ...] = ()
    daemon_endpoints: NodeDaemonEndpoints = NodeDaemonEndpoints()
    node_info: NodeSystemInfo = NodeSystemInfo()
    images: tuple[ContainerImage, ...] = ()
    volumes_in_use: tuple[str, ...] = ()
    volumes_attached: tuple[AttachedVolume, ...] = ()
    config: Raw | None = None
    runtime_handlers: tuple[NodeRuntimeHandler, ...] = ()
    features: NodeFeatures | None = None
    declared_features: tuple[str, ...] = ()


class Node(Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()
