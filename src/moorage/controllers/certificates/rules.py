"""Rules of the built-in signers: which requests are a node agent's, and which a signer refuses.

Source: apis `certificates.ValidateKubelet{Client,Serving}CSR` and kube-controller-manager's
`csrsigning` of Kubernetes 1.36, whose texts these are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from cryptography import x509

from moorage.api.certificate_requests import CertificateRequest
from moorage.api.certificates import API_SERVER_CLIENT, KUBELET_CLIENT, KUBELET_SERVING

_NODES = ("system:nodes",)
_NODE_PREFIX = "system:node:"
_DIGITAL_SIGNATURE, _KEY_ENCIPHERMENT = "digital signature", "key encipherment"
CLIENT_AUTH, SERVER_AUTH = "client auth", "server auth"

_NO_NODES = "subject organization is not system:nodes"
_NO_NODE_NAME = "subject common name does not begin with system:node:"


def is_kubelet_client(request: CertificateRequest, usages: Collection[str]) -> bool:
    """Return whether a request asks for what a node agent calls the API with."""
    return not _kubelet_client_defect(request, usages)


def defect_of(signer: str, request: CertificateRequest, usages: Collection[str]) -> str | None:
    """Return why a signer refuses a request, `""` if it signs it, None for another's signer."""
    rule = _RULES.get(signer)
    return None if rule is None else rule(request, usages)


def _kubelet_client_defect(request: CertificateRequest, usages: Collection[str]) -> str:
    if request.organizations != _NODES:
        return _NO_NODES
    for name_type, what in (
        (x509.DNSName, "DNS"),
        (x509.RFC822Name, "Email"),
        (x509.IPAddress, "IP"),
        (x509.UniformResourceIdentifier, "URI"),
    ):
        if request.has_name(name_type):
            return f"{what} subjectAltNames are not allowed"
    if not request.common_name.startswith(_NODE_PREFIX):
        return _NO_NODE_NAME
    return _usage_defect(usages, CLIENT_AUTH)


def _kubelet_serving_defect(request: CertificateRequest, usages: Collection[str]) -> str:
    if request.organizations != _NODES:
        return _NO_NODES
    if not request.has_name(x509.DNSName) and not request.has_name(x509.IPAddress):
        return "DNS or IP subjectAltName is required"
    for name_type, what in ((x509.RFC822Name, "Email"), (x509.UniformResourceIdentifier, "URI")):
        if request.has_name(name_type):
            return f"{what} subjectAltNames are not allowed"
    if defect := _usage_defect(usages, SERVER_AUTH):
        return defect
    return "" if request.common_name.startswith(_NODE_PREFIX) else _NO_NODE_NAME


def _usage_defect(usages: Collection[str], purpose: str) -> str:
    """Return an error unless the usages are a signature and a purpose, and maybe keys."""
    least = {_DIGITAL_SIGNATURE, purpose}
    if set(usages) in (least, least | {_KEY_ENCIPHERMENT}):
        return ""
    return f"usages did not match [{' '.join(sorted(least | {_KEY_ENCIPHERMENT}))}]"


def _client_defect(request: CertificateRequest, usages: Collection[str]) -> str:
    del request
    for usage in usages:
        if usage not in (_DIGITAL_SIGNATURE, _KEY_ENCIPHERMENT, CLIENT_AUTH):
            return f"invalid usage for client certificate: {usage}"
    if CLIENT_AUTH not in usages:
        return f"missing required usage for client certificate: {CLIENT_AUTH}"
    return ""


_RULES: dict[str, Callable[[CertificateRequest, Collection[str]], str]] = {
    API_SERVER_CLIENT: _client_defect,
    KUBELET_CLIENT: _kubelet_client_defect,
    KUBELET_SERVING: _kubelet_serving_defect,
}
"""Signer → its rule. Requests for `legacy-unknown` cannot be created in v1."""
