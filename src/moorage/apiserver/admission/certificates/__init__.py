"""Admission of certificate requests and trust bundles: who may approve, sign and attest what."""

from moorage.apiserver.admission.certificates.node_requests import NodeCertificateRequests
from moorage.apiserver.admission.certificates.pod_requests import PodCertificateSigning
from moorage.apiserver.admission.certificates.requester import CertificateRequester
from moorage.apiserver.admission.certificates.signers import (
    CertificateApproval,
    CertificateSigning,
    ClusterTrustBundleAttest,
)
from moorage.apiserver.admission.certificates.subject import CertificateSubjectRestriction

__all__ = [
    "CertificateApproval",
    "CertificateRequester",
    "CertificateSigning",
    "CertificateSubjectRestriction",
    "ClusterTrustBundleAttest",
    "NodeCertificateRequests",
    "PodCertificateSigning",
]
