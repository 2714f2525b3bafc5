"""APIServices. Source: apiregistration validation of Kubernetes 1.37."""

from __future__ import annotations

from moorage.registry.kind import Kind, PartRules, Served, Strategy, status_subresource
from moorage.registry.preparation import drop_status, keep_spec, keep_status

_TYPES = "io.k8s.kube-aggregator.pkg.apis.apiregistration.v1"

API_SERVICE = Kind(
    name="APIService",
    plural="apiservices",
    served=(Served(group="apiregistration.k8s.io", version="v1", type=f"{_TYPES}.APIService"),),
    is_namespaced=False,
    categories=("api-extensions",),
    strategy=Strategy(
        prepare_create=drop_status,
        prepare_update=keep_status,
        parts={"status": PartRules(prepare=keep_spec)},
        needs_revision_on_update=True,
    ),
    subresources=status_subresource(),
)
