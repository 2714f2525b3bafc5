"""Admission webhook: the admission of runtime policies, for API servers that are not ours.

    AdmissionReview ──HTTPS──▶ server.py ──▶ reviews.py ──▶ admission.runtime_policies ──▶ patch
                                                              ▲
                       client ──informers──▶ informed_facts.py┘

The functions are those that our own API server runs in process. Source: API docs "Dynamic Admission
Control", admission.k8s.io/v1.
"""

from moorage.attach.webhook.informed_facts import InformedFacts
from moorage.attach.webhook.reviews import Reviewer
from moorage.attach.webhook.server import WebhookOptions, serve_webhook

__all__ = ["InformedFacts", "Reviewer", "WebhookOptions", "serve_webhook"]
