"""MutatingWebhookConfigurations. Source: admissionregistration validation of Kubernetes 1.37."""

from __future__ import annotations

from moorage.registry.kind import Kind, Served, Strategy

_TYPES = "io.k8s.api.admissionregistration.v1"

MUTATING_WEBHOOK_CONFIGURATION = Kind(
    name="MutatingWebhookConfiguration",
    plural="mutatingwebhookconfigurations",
    served=(
        Served(
            group="admissionregistration.k8s.io",
            version="v1",
            type=f"{_TYPES}.MutatingWebhookConfiguration",
        ),
    ),
    is_namespaced=False,
    categories=("api-extensions",),
    strategy=Strategy(
        spec_of=lambda obj: obj.get("webhooks"),
        needs_revision_on_update=True,
    ),
)
