"""CustomResourceDefinitions. Source: apiextensions validation of Kubernetes 1.37."""

from __future__ import annotations

from moorage.registry.kind import Kind, PartRules, Served, Strategy, get_spec, status_subresource
from moorage.registry.preparation import drop_status, keep_spec, keep_status

_TYPES = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1"

CUSTOM_RESOURCE_DEFINITION = Kind(
    name="CustomResourceDefinition",
    plural="customresourcedefinitions",
    served=(
        Served(
            group="apiextensions.k8s.io", version="v1", type=f"{_TYPES}.CustomResourceDefinition"
        ),
    ),
    is_namespaced=False,
    short_names=("crd", "crds"),
    categories=("api-extensions",),
    strategy=Strategy(
        prepare_create=drop_status,
        prepare_update=keep_status,
        parts={"status": PartRules(prepare=keep_spec)},
        spec_of=get_spec,
        needs_revision_on_update=True,
    ),
    subresources=status_subresource(),
)
