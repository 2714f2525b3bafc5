"""Admission of certificate requests and trust bundles: who may approve, sign and attest what."""

from moorage.admission.certificates.requester import CertificateRequester
from moorage.admission.certificates.signers import (
    CertificateApproval,
    CertificateSigning,
    ClusterTrustBundleAttest,
)
from moorage.admission.certificates.subject import CertificateSubjectRestriction

__all__ = [
    "CertificateApproval",
    "CertificateRequester",
    "CertificateSigning",
    "CertificateSubjectRestriction",
    "ClusterTrustBundleAttest",
]
