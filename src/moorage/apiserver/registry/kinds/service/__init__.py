"""Services."""

from __future__ import annotations

from moorage.api import names
from moorage.apiserver.registry.kind import (
    Kind,
    Obj,
    PartRules,
    SelectableField,
    Served,
    Strategy,
    proxy_subresource,
    status_subresource,
)
from moorage.apiserver.registry.kinds.service.columns import PRINTER
from moorage.apiserver.registry.kinds.service.defaults import default_service
from moorage.apiserver.registry.kinds.service.preparation import (
    prepare_service_create,
    prepare_service_update,
)
from moorage.apiserver.registry.kinds.service.validation import (
    validate_service,
    validate_service_update,
)
from moorage.apiserver.registry.preparation import keep_spec


def warn_service(service: Obj, old: Obj | None) -> list[str]:
    """Return the warnings about addresses and ignored fields."""
    del old
    spec = service["spec"]
    warnings: list[str] = []
    if spec.get("loadBalancerIP"):
        warnings.append("spec.loadBalancerIP is deprecated")
    if spec.get("clusterIP") == "None":
        if spec.get("loadBalancerIP"):
            warnings.append("spec.loadBalancerIP is ignored for headless services")
        if spec.get("externalIPs"):
            warnings.append('spec.externalIPs is ignored when spec.clusterIP is "None"')
        if spec.get("sessionAffinity") != "None":
            warnings.append("spec.SessionAffinity is ignored for headless services")
    return warnings


SERVICE = Kind(
    name="Service",
    plural="services",
    served=(Served(group="", version="v1", type="io.k8s.api.core.v1.Service"),),
    short_names=("svc",),
    categories=("all",),
    strategy=Strategy(
        default=default_service,
        prepare_create=prepare_service_create,
        prepare_update=prepare_service_update,
        validate=validate_service,
        validate_update=validate_service_update,
        parts={"status": PartRules(keep_spec)},
        warn=warn_service,
        name_errors=names.dns_label_errors,
        may_create_on_update=True,
        returns_deleted=True,
    ),
    printer=PRINTER,
    selectable=(
        SelectableField("spec.clusterIP", ("spec", "clusterIP")),
        SelectableField("spec.type", ("spec", "type")),
    ),
    subresources={**proxy_subresource("ServiceProxyOptions"), **status_subresource()},
)
