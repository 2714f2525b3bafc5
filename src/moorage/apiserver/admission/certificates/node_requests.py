"""Certificate requests of node agents: each asks for certificates in its own name only.

Part of upstream's plugin NodeRestriction of Kubernetes 1.36, with the gate
AllowInsecureKubeletCertificateSigningRequests off as it is by default.
"""

from __future__ import annotations

import base64

from moorage.api.certificates import GROUP, KUBELET_CLIENT, KUBELET_SERVING
from moorage.apiserver.admission.chain import CREATE, Scope
from moorage.apiserver.admission.node_restriction import NODE_USER_PREFIX, node_name_of
from moorage.apiserver.admission.refusal import refused
from moorage.apiserver.registry.request import Attributes


class NodeCertificateRequests:
    """Refuses requests of a node agent to the agents' signers for another's name."""

    name = "NodeRestriction"
    scope = Scope.of([f"certificatesigningrequests.{GROUP}"], [CREATE])
    mutate = None

    def __init__(self) -> None:
        self.validate = self._check

    def _check(self, attributes: Attributes) -> None:
        node_name = node_name_of(attributes.request.user)
        spec = (attributes.obj or {}).get("spec", {})
        if node_name is None or spec.get("signerName") not in (KUBELET_CLIENT, KUBELET_SERVING):
            return
        from moorage.api.certificate_requests import CertificateRequestError, parse_pem_request

        try:
            request = parse_pem_request(base64.b64decode(spec.get("request", "")))
        except CertificateRequestError as error:
            raise refused(attributes, f"unable to parse csr: {error}") from error
        own = f"{NODE_USER_PREFIX}{node_name}"
        if request.common_name != own:
            raise refused(attributes, f"can only create a node CSR with CN={own}")
