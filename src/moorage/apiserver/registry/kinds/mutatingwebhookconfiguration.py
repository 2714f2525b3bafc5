"""MutatingWebhookConfigurations. Source: admissionregistration validation of Kubernetes 1.36."""

from __future__ import annotations

from moorage.apiserver.registry.columns.admission import WEBHOOKS
from moorage.apiserver.registry.kind import Kind, Obj, Served, Strategy
from moorage.apiserver.registry.validation.policy_expressions import webhook_expressions
from moorage.apiserver.registry.validation.webhooks import (
    default_webhooks,
    validate_webhooks,
    validate_webhooks_update,
    warn_about_webhooks,
)

_TYPES = "io.k8s.api.admissionregistration.v1"


def default_mutating_webhooks(configuration: Obj) -> None:
    """Set the API defaults of a MutatingWebhookConfiguration."""
    default_webhooks(configuration)
    for webhook in configuration.get("webhooks", ()):
        webhook.setdefault("reinvocationPolicy", "Never")


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
        default=default_mutating_webhooks,
        validate=validate_webhooks,
        validate_update=validate_webhooks_update,
        warn=warn_about_webhooks,
        spec_of=lambda obj: obj.get("webhooks"),
        expressions=webhook_expressions,
        needs_revision_on_update=True,
    ),
    printer=WEBHOOKS,
)
