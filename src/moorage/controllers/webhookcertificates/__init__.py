"""Controller of the webhook's certificate: issues and rotates it, and keeps `caBundle`.

plan.py        which step is due (pure)
issuing.py     a private authority and the certificate that it signs; reading them back
controller.py  the Secret and the webhook configurations
"""

from moorage.controllers.webhookcertificates.controller import (
    WebhookCertificateController,
    WebhookService,
)

__all__ = ["WebhookCertificateController", "WebhookService"]
