"""Certificates: requests approved, signed, cleaned up; the bundle that verifies the API server."""

from moorage.controllers.certificates.cleaner import (
    certificate_cleaner,
    pod_certificate_request_cleaner,
)
from moorage.controllers.certificates.controller import CertificateController
from moorage.controllers.certificates.trust_bundle import trust_bundle_publisher

__all__ = [
    "CertificateController",
    "certificate_cleaner",
    "pod_certificate_request_cleaner",
    "trust_bundle_publisher",
]
