"""Certificates: requests approved, signed, cleaned up; the bundle that verifies the API server."""

from moorage.controllers.certificates.cleaner import (
    CertificateCleaner,
    PodCertificateRequestCleaner,
)
from moorage.controllers.certificates.controller import CertificateController
from moorage.controllers.certificates.trust_bundle import TrustBundlePublisher

__all__ = [
    "CertificateCleaner",
    "CertificateController",
    "PodCertificateRequestCleaner",
    "TrustBundlePublisher",
]
