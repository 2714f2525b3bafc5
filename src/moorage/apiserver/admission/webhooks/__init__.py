"""Admission webhooks: servers that change or check writes.

    mutating.py, validating.py ──▶ dispatch.py       which webhooks see a write, and a call
                                   ├─▶ matching       rules and selectors
                                   ├─▶ cel.Evaluator  match conditions
                                   ├─▶ review.py      the AdmissionReview that is sent and answered
                                   └─▶ moorage.wire.webhooks   HTTPS
    sources.py                    the configurations, decoded when they change

Source: API docs "Dynamic Admission Control"; apiserver `admission/plugin/webhook`.
"""

from moorage.apiserver.admission.webhooks.dispatch import Dispatch
from moorage.apiserver.admission.webhooks.mutating import MutatingWebhooks, ValidatingWebhooks
from moorage.apiserver.admission.webhooks.sources import CachedWebhooks

__all__ = [
    "CachedWebhooks",
    "Dispatch",
    "MutatingWebhooks",
    "ValidatingWebhooks",
]
