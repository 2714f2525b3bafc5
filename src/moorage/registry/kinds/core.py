"""The core group: pods, nodes and what belongs to them."""

from __future__ import annotations

from moorage.api import names
from moorage.registry import columns, defaults, preparation, validation, warnings
from moorage.registry.kind import (
    ALL_VERBS,
    STATUS_VERBS,
    Kind,
    Obj,
    PartRules,
    SelectableField,
    Served,
    Strategy,
    Subresource,
    status_subresource,
)

_TYPES = "io.k8s.api.core.v1"
_DEFAULT_GRACE_S = 30
_CONNECT = ("create", "get")
_NO_COLLECTION_DELETE = tuple(verb for verb in ALL_VERBS if verb != "deletecollection")


def _core(kind: str) -> tuple[Served, ...]:
    return (Served(group="", version="v1", type=f"{_TYPES}.{kind}"),)


def _spec(obj: Obj) -> object:
    return obj.get("spec")


def _pod_grace_seconds(pod: Obj, asked: int | None) -> int:
    """A pod that does not run, or has ended, needs no time to end."""
    grace_s = asked
    if grace_s is None:
        grace_s = pod["spec"].get("terminationGracePeriodSeconds", _DEFAULT_GRACE_S)
    if not pod["spec"].get("nodeName") or pod.get("status", {}).get("phase") in (
        "Succeeded",
        "Failed",
    ):
        return 0
    return int(grace_s) if grace_s >= 0 else 1


POD = Kind(
    name="Pod",
    plural="pods",
    served=_core("Pod"),
    short_names=("po",),
    categories=("all",),
    strategy=Strategy(
        default=defaults.default_pod,
        prepare_create=preparation.prepare_pod_create,
        prepare_update=preparation.keep_status,
        validate=validation.validate_pod,
        validate_update=validation.validate_pod_update,
        parts={
            "status": PartRules(preparation.prepare_pod_status, validation.validate_pod_status),
            "ephemeralcontainers": PartRules(
                preparation.prepare_ephemeral_containers,
                validation.validate_ephemeral_containers_update,
            ),
            # Binding completes the spec that the user wrote; it does not change it.
            "binding": PartRules(raises_generation=False),
        },
        warn=warnings.warn_pod,
        spec_of=_spec,
        returns_deleted=True,
        grace_seconds=_pod_grace_seconds,
    ),
    printer=columns.PODS,
    selectable=(
        SelectableField("spec.nodeName", ("spec", "nodeName")),
        SelectableField("spec.host", ("spec", "nodeName")),
        SelectableField("spec.restartPolicy", ("spec", "restartPolicy")),
        SelectableField("spec.schedulerName", ("spec", "schedulerName")),
        SelectableField("spec.serviceAccountName", ("spec", "serviceAccountName")),
        SelectableField("spec.hostNetwork", ("spec", "hostNetwork"), "false"),
        SelectableField("status.phase", ("status", "phase")),
        SelectableField("status.podIP", ("status", "podIP")),
        SelectableField("status.podIPs", ("status", "podIP")),
        SelectableField("status.nominatedNodeName", ("status", "nominatedNodeName")),
    ),
    subresources={
        **status_subresource(),
        "attach": Subresource(verbs=_CONNECT, kind="PodAttachOptions"),
        "binding": Subresource(verbs=("create",), kind="Binding", type=f"{_TYPES}.Binding"),
        "ephemeralcontainers": Subresource(verbs=STATUS_VERBS),
        "eviction": Subresource(
            verbs=("create",),
            group="policy",
            version="v1",
            kind="Eviction",
            type="io.k8s.api.policy.v1.Eviction",
        ),
        "exec": Subresource(verbs=_CONNECT, kind="PodExecOptions"),
        "log": Subresource(verbs=("get",)),
        "portforward": Subresource(verbs=_CONNECT, kind="PodPortForwardOptions"),
    },
)

NODE = Kind(
    name="Node",
    plural="nodes",
    served=_core("Node"),
    is_namespaced=False,
    short_names=("no",),
    strategy=Strategy(
        default=defaults.default_node,
        prepare_update=preparation.keep_status,
        validate=validation.validate_node,
        validate_update=validation.validate_node_update,
        parts={"status": PartRules(preparation.keep_spec, validation.validate_node_update)},
        warn=warnings.warn_node,
    ),
    printer=columns.NODES,
    selectable=(SelectableField("spec.unschedulable", ("spec", "unschedulable"), "false"),),
    subresources=status_subresource(),
)


def _hold_namespace(namespace: Obj) -> None:
    namespace.setdefault("status", {})["phase"] = "Terminating"


def _is_namespace_held(namespace: Obj) -> bool:
    return bool(namespace.get("spec", {}).get("finalizers"))


NAMESPACE = Kind(
    name="Namespace",
    plural="namespaces",
    served=_core("Namespace"),
    is_namespaced=False,
    short_names=("ns",),
    verbs=_NO_COLLECTION_DELETE,
    strategy=Strategy(
        default=defaults.default_namespace,
        prepare_create=preparation.prepare_namespace_create,
        prepare_update=preparation.prepare_namespace_update,
        validate=validation.validate_namespace,
        validate_update=validation.validate_namespace_update,
        parts={
            "status": PartRules(preparation.keep_spec, validation.validate_namespace_update),
            "finalize": PartRules(
                preparation.prepare_namespace_finalize, validation.validate_namespace_update
            ),
        },
        name_errors=names.dns_label_errors,
        returns_deleted=True,
        mark_deleted=_hold_namespace,
        is_held=_is_namespace_held,
    ),
    printer=columns.NAMESPACES,
    selectable=(SelectableField("status.phase", ("status", "phase")),),
    subresources={**status_subresource(), "finalize": Subresource(verbs=("update",))},
)

CONFIG_MAP = Kind(
    name="ConfigMap",
    plural="configmaps",
    served=_core("ConfigMap"),
    short_names=("cm",),
    strategy=Strategy(
        validate=validation.validate_config_map,
        validate_update=validation.validate_config_map_update,
    ),
    printer=columns.CONFIG_MAPS,
)

SECRET = Kind(
    name="Secret",
    plural="secrets",
    served=_core("Secret"),
    strategy=Strategy(
        default=defaults.default_secret,
        prepare_update=preparation.prepare_secret_update,
        validate=validation.validate_secret,
        validate_update=validation.validate_secret_update,
    ),
    printer=columns.SECRETS,
    selectable=(SelectableField("type", ("type",)),),
)

SERVICE_ACCOUNT = Kind(
    name="ServiceAccount",
    plural="serviceaccounts",
    served=_core("ServiceAccount"),
    short_names=("sa",),
    strategy=Strategy(
        warn=warnings.warn_service_account,
        returns_deleted=True,
    ),
    printer=columns.SERVICE_ACCOUNTS,
    subresources={
        "token": Subresource(
            verbs=("create",),
            group="authentication.k8s.io",
            version="v1",
            kind="TokenRequest",
            type="io.k8s.api.authentication.v1.TokenRequest",
        )
    },
)

SERVICE = Kind(
    name="Service",
    plural="services",
    served=_core("Service"),
    short_names=("svc",),
    categories=("all",),
    strategy=Strategy(
        default=defaults.default_service,
        prepare_create=preparation.prepare_service_create,
        prepare_update=preparation.keep_status,
        validate=validation.validate_service,
        validate_update=validation.validate_service_update,
        parts={"status": PartRules(preparation.keep_spec)},
        warn=warnings.warn_service,
        name_errors=names.dns_label_errors,
        may_create_on_update=True,
        returns_deleted=True,
    ),
    printer=columns.SERVICES,
    selectable=(
        SelectableField("spec.clusterIP", ("spec", "clusterIP")),
        SelectableField("spec.type", ("spec", "type")),
    ),
    subresources=status_subresource(),
)

ENDPOINTS = Kind(
    name="Endpoints",
    plural="endpoints",
    served=(
        Served(
            group="",
            version="v1",
            type=f"{_TYPES}.Endpoints",
            warning="v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
        ),
    ),
    short_names=("ep",),
    strategy=Strategy(
        default=defaults.default_endpoints,
        validate=validation.validate_endpoints,
        validate_update=validation.validate_endpoints_update,
        may_create_on_update=True,
    ),
    printer=columns.ENDPOINTS,
)
