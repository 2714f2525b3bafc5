"""ValidatingAdmissionPolicies. Source: admissionregistration validation of Kubernetes 1.37."""

from __future__ import annotations

from moorage.registry.kind import Kind, PartRules, Served, Strategy, get_spec, status_subresource
from moorage.registry.preparation import drop_status, keep_spec, keep_status

_TYPES = "io.k8s.api.admissionregistration.v1"

VALIDATING_ADMISSION_POLICY = Kind(
    name="ValidatingAdmissionPolicy",
    plural="validatingadmissionpolicies",
    served=(
        Served(
            group="admissionregistration.k8s.io",
            version="v1",
            type=f"{_TYPES}.ValidatingAdmissionPolicy",
        ),
    ),
    is_namespaced=False,
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
