"""Deployments, in apps/v1 and in extensions/v1beta1."""

from __future__ import annotations

from moorage.apiserver.registry.kind import (
    Kind,
    Obj,
    PartRules,
    Served,
    Strategy,
    scale_subresource,
    status_subresource,
)
from moorage.apiserver.registry.kinds.deployment.columns import PRINTER
from moorage.apiserver.registry.kinds.deployment.conversion import from_extensions, to_extensions
from moorage.apiserver.registry.kinds.deployment.defaults import default_deployment
from moorage.apiserver.registry.kinds.deployment.validation import (
    validate_deployment,
    validate_deployment_status,
    validate_deployment_update,
)
from moorage.apiserver.registry.preparation import drop_status, keep_spec_and_labels, keep_status
from moorage.apiserver.registry.warnings import warn_workload

_TYPES = "io.k8s.api.apps.v1"


def _spec_and_annotations(obj: Obj) -> object:
    """A Deployment's generation also counts annotations, which revisions are noted in."""
    return obj.get("spec"), obj["metadata"].get("annotations")


DEPLOYMENT = Kind(
    name="Deployment",
    plural="deployments",
    served=(
        Served(group="apps", version="v1", type=f"{_TYPES}.Deployment"),
        Served(
            group="extensions",
            version="v1beta1",
            type="io.k8s.api.extensions.v1beta1.Deployment",
            to_storage=from_extensions,
            from_storage=to_extensions,
            warning=(
                "extensions/v1beta1 Deployment is deprecated in v1.9+, unavailable in v1.16+; "
                "use apps/v1 Deployment"
            ),
        ),
    ),
    short_names=("deploy",),
    categories=("all",),
    strategy=Strategy(
        default=default_deployment,
        prepare_create=drop_status,
        prepare_update=keep_status,
        validate=validate_deployment,
        validate_update=validate_deployment_update,
        parts={"status": PartRules(keep_spec_and_labels, validate_deployment_status)},
        warn=warn_workload,
        spec_of=_spec_and_annotations,
    ),
    printer=PRINTER,
    subresources={**status_subresource(), **scale_subresource()},
)
