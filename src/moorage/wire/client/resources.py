"""API resources that Moorage's components use, each with the struct of its objects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from moorage.api.admission_policies import ValidatingAdmissionPolicy
from moorage.api.autoscaling import HorizontalPodAutoscaler
from moorage.api.certificates import CertificateSigningRequest, ClusterTrustBundle
from moorage.api.configuration import ConfigMap, Secret, ServiceAccount
from moorage.api.coordination import Lease
from moorage.api.disruptions import PodDisruptionBudget
from moorage.api.events import Event
from moorage.api.jobs import CronJob, Job
from moorage.api.meta import Object, ObjectMeta
from moorage.api.names import Namespace
from moorage.api.nodes import Node
from moorage.api.persistent_volumes import PersistentVolume, PersistentVolumeClaim, StorageClass
from moorage.api.pods import Pod, PriorityClass
from moorage.api.quotas import ResourceQuota
from moorage.api.rbac import ClusterRole
from moorage.api.runtime_group import (
    GROUP,
    VERSION,
    ClusterRuntimePolicy,
    RuntimeClass,
    RuntimeClassQuota,
    RuntimePolicy,
    RuntimeProfile,
)
from moorage.api.runtime_installations import RuntimeInstallation
from moorage.api.runtime_rollouts import RuntimeRollout
from moorage.api.services import Endpoints, IPAddress, Service, ServiceCIDR
from moorage.api.workloads import (
    ControllerRevision,
    DaemonSet,
    Deployment,
    PodTemplate,
    ReplicaSet,
    ReplicationController,
    StatefulSet,
)

T = TypeVar("T", bound=Object)


@dataclass(frozen=True, slots=True)
class Resource(Generic[T]):
    """A resource: the kind of its objects, its URL path, and the struct that holds an object."""

    group: str
    version: str
    plural: str
    kind: str
    type: type[T]
    is_namespaced: bool = True

    @property
    def api_version(self) -> str:
        """Return the `apiVersion`: `group/version`, or the version for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(
        self, namespace: str | None = None, name: str | None = None, subresource: str | None = None
    ) -> str:
        """Return the URL path of the collection, an object or a subresource.

        Without a namespace, the path of a namespaced resource is its collection in all namespaces.
        """
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        parts = [root]
        if self.is_namespaced and namespace:
            parts.append(f"namespaces/{namespace}")
        parts.append(self.plural)
        if name:
            parts.append(name)
        if subresource:
            parts.append(subresource)
        return "/".join(parts)


def read_as(resource: Resource[Any], type_: type[T]) -> Resource[T]:
    """Return the same resource, read as another struct: only the fields that it has."""
    return Resource(
        resource.group,
        resource.version,
        resource.plural,
        resource.kind,
        type_,
        is_namespaced=resource.is_namespaced,
    )


class PartialObject(Object, frozen=True):
    """An object of any kind, read for its metadata only."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()


PODS = Resource("", "v1", "pods", "Pod", Pod)
NODES = Resource("", "v1", "nodes", "Node", Node, is_namespaced=False)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", Namespace, is_namespaced=False)
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", ConfigMap)
SECRETS = Resource("", "v1", "secrets", "Secret", Secret)
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount", ServiceAccount)
SERVICES = Resource("", "v1", "services", "Service", Service)
ENDPOINTS = Resource("", "v1", "endpoints", "Endpoints", Endpoints)
EVENTS = Resource("", "v1", "events", "Event", Event)
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment", Deployment)
REPLICA_SETS = Resource("apps", "v1", "replicasets", "ReplicaSet", ReplicaSet)
REPLICATION_CONTROLLERS: Resource[ReplicaSet] = Resource(
    "", "v1", "replicationcontrollers", "ReplicationController", ReplicationController
)
POD_TEMPLATES = Resource("", "v1", "podtemplates", "PodTemplate", PodTemplate)
STATEFUL_SETS = Resource("apps", "v1", "statefulsets", "StatefulSet", StatefulSet)
DAEMON_SETS = Resource("apps", "v1", "daemonsets", "DaemonSet", DaemonSet)
CONTROLLER_REVISIONS = Resource(
    "apps", "v1", "controllerrevisions", "ControllerRevision", ControllerRevision
)
JOBS = Resource("batch", "v1", "jobs", "Job", Job)
CRON_JOBS = Resource("batch", "v1", "cronjobs", "CronJob", CronJob)
POD_DISRUPTION_BUDGETS = Resource(
    "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", PodDisruptionBudget
)
HORIZONTAL_POD_AUTOSCALERS = Resource(
    "autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler",
    HorizontalPodAutoscaler,
)  # fmt: skip
RESOURCE_QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota", ResourceQuota)
PERSISTENT_VOLUME_CLAIMS = Resource(
    "", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", PersistentVolumeClaim
)
PERSISTENT_VOLUMES = Resource(
    "", "v1", "persistentvolumes", "PersistentVolume", PersistentVolume, is_namespaced=False
)
STORAGE_CLASSES = Resource(
    "storage.k8s.io", "v1", "storageclasses", "StorageClass", StorageClass, is_namespaced=False
)
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease", Lease)
RUNTIME_CLASSES = Resource(
    "node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", RuntimeClass, is_namespaced=False
)
PRIORITY_CLASSES = Resource(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", PriorityClass,
    is_namespaced=False,
)  # fmt: skip
SERVICE_CIDRS = Resource(
    "networking.k8s.io", "v1", "servicecidrs", "ServiceCIDR", ServiceCIDR, is_namespaced=False
)
IP_ADDRESSES = Resource(
    "networking.k8s.io", "v1", "ipaddresses", "IPAddress", IPAddress, is_namespaced=False
)
CERTIFICATE_SIGNING_REQUESTS = Resource(
    "certificates.k8s.io", "v1", "certificatesigningrequests", "CertificateSigningRequest",
    CertificateSigningRequest, is_namespaced=False,
)  # fmt: skip
CLUSTER_TRUST_BUNDLES = Resource(
    "certificates.k8s.io", "v1", "clustertrustbundles", "ClusterTrustBundle", ClusterTrustBundle,
    is_namespaced=False,
)  # fmt: skip
CLUSTER_ROLES = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", ClusterRole,
    is_namespaced=False,
)  # fmt: skip
VALIDATING_ADMISSION_POLICIES = Resource(
    "admissionregistration.k8s.io", "v1", "validatingadmissionpolicies",
    "ValidatingAdmissionPolicy", ValidatingAdmissionPolicy, is_namespaced=False,
)  # fmt: skip
RUNTIME_PROFILES = Resource(
    GROUP, VERSION, "runtimeprofiles", "RuntimeProfile", RuntimeProfile, is_namespaced=False
)
RUNTIME_INSTALLATIONS = Resource(
    GROUP, VERSION, "runtimeinstallations", "RuntimeInstallation", RuntimeInstallation,
    is_namespaced=False,
)  # fmt: skip
RUNTIME_POLICIES = Resource(GROUP, VERSION, "runtimepolicies", "RuntimePolicy", RuntimePolicy)
CLUSTER_RUNTIME_POLICIES = Resource(
    GROUP, VERSION, "clusterruntimepolicies", "ClusterRuntimePolicy", ClusterRuntimePolicy,
    is_namespaced=False,
)  # fmt: skip
RUNTIME_CLASS_QUOTAS = Resource(
    GROUP, VERSION, "runtimeclassquotas", "RuntimeClassQuota", RuntimeClassQuota
)
RUNTIME_ROLLOUTS = Resource(
    GROUP, VERSION, "runtimerollouts", "RuntimeRollout", RuntimeRollout, is_namespaced=False
)
