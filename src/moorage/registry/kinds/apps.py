"""The apps group: Deployments (in their first home too) and ReplicaSets."""

from __future__ import annotations

from moorage.registry import columns, defaults, preparation, validation, warnings
from moorage.registry.conversion import deployments
from moorage.registry.kind import (
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

_TYPES = "io.k8s.api.apps.v1"
_SCALE = Subresource(
    verbs=STATUS_VERBS,
    group="autoscaling",
    version="v1",
    kind="Scale",
    type="io.k8s.api.autoscaling.v1.Scale",
)


def _spec_and_annotations(obj: Obj) -> object:
    """A Deployment's generation also counts annotations, which revisions are noted in."""
    return obj.get("spec"), obj["metadata"].get("annotations")


def _spec(obj: Obj) -> object:
    return obj.get("spec")


DEPLOYMENT = Kind(
    name="Deployment",
    plural="deployments",
    served=(
        Served(group="apps", version="v1", type=f"{_TYPES}.Deployment"),
        Served(
            group="extensions",
            version="v1beta1",
            type="io.k8s.api.extensions.v1beta1.Deployment",
            to_storage=deployments.from_extensions,
            from_storage=deployments.to_extensions,
            warning=(
                "extensions/v1beta1 Deployment is deprecated in v1.9+, unavailable in v1.16+; "
                "use apps/v1 Deployment"
            ),
        ),
    ),
    short_names=("deploy",),
    categories=("all",),
    strategy=Strategy(
        default=defaults.default_deployment,
        prepare_create=preparation.drop_status,
        prepare_update=preparation.keep_status,
        validate=validation.validate_deployment,
        validate_update=validation.validate_deployment_update,
        parts={
            "status": PartRules(
                preparation.keep_spec_and_labels, validation.validate_deployment_status
            )
        },
        warn=warnings.warn_workload,
        spec_of=_spec_and_annotations,
    ),
    printer=columns.DEPLOYMENTS,
    subresources={**status_subresource(), "scale": _SCALE},
)

REPLICA_SET = Kind(
    name="ReplicaSet",
    plural="replicasets",
    served=(Served(group="apps", version="v1", type=f"{_TYPES}.ReplicaSet"),),
    short_names=("rs",),
    categories=("all",),
    strategy=Strategy(
        default=defaults.default_replica_set,
        prepare_create=preparation.drop_status,
        prepare_update=preparation.keep_status,
        validate=validation.validate_replica_set,
        validate_update=validation.validate_replica_set_update,
        parts={
            "status": PartRules(
                preparation.keep_spec_and_labels, validation.validate_replica_set_status
            )
        },
        warn=warnings.warn_workload,
        spec_of=_spec,
    ),
    printer=columns.REPLICA_SETS,
    selectable=(SelectableField("status.replicas", ("status", "replicas"), "0"),),
    subresources={**status_subresource(), "scale": _SCALE},
)
