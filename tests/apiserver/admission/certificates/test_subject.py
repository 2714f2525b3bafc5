"""Client certificates for `system:masters`."""

from __future__ import annotations

import pytest

from moorage.api.errors import ForbiddenError
from moorage.apiserver.admission.certificates import CertificateSubjectRestriction
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.kinds.certificatesigningrequest import CERTIFICATE_SIGNING_REQUEST
from tests.apiserver.admission.writes import admit, write
from tests.certificates import encoded, request_pem

CLIENT = "kubernetes.io/kube-apiserver-client"


def csr(signer: str, request: bytes) -> Obj:
    spec = {"signerName": signer, "request": encoded(request)}
    return {"metadata": {"name": "r"}, "spec": spec}


@pytest.mark.parametrize(
    ("signer", "request_text", "says"),
    [
        (CLIENT, request_pem("a", "dev"), None),
        (CLIENT, request_pem("a", "dev", "system:masters"),
         f"use of {CLIENT} signer with system:masters group is not allowed"),
        (CLIENT, b"x", "failed to parse CSR: PEM block type must be CERTIFICATE REQUEST"),
        ("example.com/s", request_pem("a", "system:masters"), None),
        (f"{CLIENT}-kubelet", request_pem("a", "system:masters"), None),
    ],
)  # fmt: skip
def test_subjects(signer: str, request_text: bytes, says: str | None) -> None:
    attributes = write(CERTIFICATE_SIGNING_REQUEST, csr(signer, request_text))
    if says is None:
        admit(CertificateSubjectRestriction(), attributes)
        return
    with pytest.raises(ForbiddenError) as refusal:
        admit(CertificateSubjectRestriction(), attributes)
    prefix = 'certificatesigningrequests.certificates.k8s.io "r" is forbidden: '
    assert refusal.value.message == prefix + says
