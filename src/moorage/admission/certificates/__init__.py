"""Admission of certificate requests and trust bundles: who may approve, sign and attest what."""

from moorage.admission.certificates.node_requests import NodeCertificateRequests
from moorage.admission.certificates.pod_requests import PodCertificateSigning
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
    "NodeCertificateRequests",
    "PodCertificateSigning",
]
