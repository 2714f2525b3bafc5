"""Certificate requests of node agents."""

from __future__ import annotations

import pytest

from moorage.api.errors import ForbiddenError
from moorage.apiserver.admission.certificates import NodeCertificateRequests
from moorage.apiserver.registry.kinds.certificatesigningrequest import CERTIFICATE_SIGNING_REQUEST
from moorage.apiserver.registry.request import User
from tests.apiserver.admission.writes import ALICE, admit, write
from tests.certificates import encoded, request_pem

AGENT = User("system:node:n1", groups=("system:nodes",))
KUBELET = "kubernetes.io/kube-apiserver-client-kubelet"
OWN, OTHER = request_pem("system:node:n1"), request_pem("system:node:n2")
NAME = "can only create a node CSR with CN=system:node:n1"


@pytest.mark.parametrize(
    ("user", "signer", "request_text", "says"),
    [
        (AGENT, KUBELET, OWN, None),
        (AGENT, KUBELET, OTHER, NAME),
        (AGENT, "kubernetes.io/kubelet-serving", OTHER, NAME),
        (AGENT, "kubernetes.io/kubelet-serving", b"x",
         "unable to parse csr: PEM block type must be CERTIFICATE REQUEST"),
        (AGENT, "example.com/signer", OTHER, None),
        (ALICE, KUBELET, OTHER, None),
    ],
)  # fmt: skip
def test_an_agent_asks_in_its_own_name(
    user: User, signer: str, request_text: bytes, says: str | None
) -> None:
    spec = {"signerName": signer, "request": encoded(request_text)}
    body = {"metadata": {"name": "r"}, "spec": spec}
    attributes = write(CERTIFICATE_SIGNING_REQUEST, body, user=user)
    if says is None:
        admit(NodeCertificateRequests(), attributes)
        return
    with pytest.raises(ForbiddenError, match=says):
        admit(NodeCertificateRequests(), attributes)
