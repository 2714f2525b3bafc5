"""Certificates: requests approved, signed, cleaned up; the bundle that verifies the API server."""

from moorage.controllers.certificates.cleaner import (
    certificate_cleaner,
    pod_certificate_request_cleaner,
    trust_bundle_publisher,
)
from moorage.controllers.certificates.controller import CertificateController

__all__ = [
    "CertificateController",
    "certificate_cleaner",
    "pod_certificate_request_cleaner",
    "trust_bundle_publisher",
]
