"""MutatingAdmissionPolicies. Source: admissionregistration validation of Kubernetes 1.37."""

from __future__ import annotations

from moorage.registry.kind import Kind, Served, Strategy, get_spec

_TYPES = "io.k8s.api.admissionregistration.v1"

MUTATING_ADMISSION_POLICY = Kind(
    name="MutatingAdmissionPolicy",
    plural="mutatingadmissionpolicies",
    served=(
        Served(
            group="admissionregistration.k8s.io",
            version="v1",
            type=f"{_TYPES}.MutatingAdmissionPolicy",
        ),
    ),
    is_namespaced=False,
    categories=("api-extensions",),
    strategy=Strategy(
        spec_of=get_spec,
        needs_revision_on_update=True,
    ),
)
