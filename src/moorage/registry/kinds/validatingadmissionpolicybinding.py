"""ValidatingAdmissionPolicyBindings. Source: admissionregistration validation, Kubernetes 1.37."""

from __future__ import annotations

from moorage.registry.kind import Kind, Served, Strategy, get_spec

_TYPES = "io.k8s.api.admissionregistration.v1"

VALIDATING_ADMISSION_POLICY_BINDING = Kind(
    name="ValidatingAdmissionPolicyBinding",
    plural="validatingadmissionpolicybindings",
    served=(
        Served(
            group="admissionregistration.k8s.io",
            version="v1",
            type=f"{_TYPES}.ValidatingAdmissionPolicyBinding",
        ),
    ),
    is_namespaced=False,
    categories=("api-extensions",),
    strategy=Strategy(
        spec_of=get_spec,
        needs_revision_on_update=True,
    ),
)
