"""CertificateSubjectRestriction plugin: no client certificate makes its holder a cluster admin.

Source: apiserver plugin CertificateSubjectRestriction of Kubernetes 1.36.
"""

from __future__ import annotations

import base64

from moorage.api.certificates import API_SERVER_CLIENT, GROUP
from moorage.apiserver.admission.chain import CREATE, Scope
from moorage.apiserver.admission.refusal import refused
from moorage.apiserver.registry.request import SYSTEM_MASTERS, Attributes


class CertificateSubjectRestriction:
    """Refuses requests to `kube-apiserver-client` with the organization `system:masters`."""

    name = "CertificateSubjectRestriction"
    scope = Scope.of([f"certificatesigningrequests.{GROUP}"], [CREATE])
    mutate = None

    def __init__(self) -> None:
        self.validate = self._check

    def _check(self, attributes: Attributes) -> None:
        spec = (attributes.obj or {}).get("spec", {})
        if spec.get("signerName") != API_SERVER_CLIENT:
            return
        from moorage.api.certificate_requests import CertificateRequestError, parse_pem_request

        try:
            request = parse_pem_request(base64.b64decode(spec.get("request", "")))
        except CertificateRequestError as error:
            raise refused(attributes, f"failed to parse CSR: {error}") from error
        if SYSTEM_MASTERS in request.organizations:
            why = f"use of {API_SERVER_CLIENT} signer with {SYSTEM_MASTERS} group is not allowed"
            raise refused(attributes, why)
