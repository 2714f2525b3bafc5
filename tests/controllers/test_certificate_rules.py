"""What the built-in signers sign."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from moorage.api.certificate_requests import CertificateRequest, parse_request
from moorage.controllers.certificates.rules import defect_of, is_kubelet_client
from tests.certificates import request_der

CLIENT = "kubernetes.io/kube-apiserver-client"
KUBELET = "kubernetes.io/kube-apiserver-client-kubelet"
SERVING = "kubernetes.io/kubelet-serving"
SIGN, KEYS = "digital signature", "key encipherment"
NODE = ("system:node:n", "system:nodes")


def parsed(*subject: str, names: Sequence[str] = ()) -> CertificateRequest:
    return parse_request(request_der(*subject, names=names))


@pytest.mark.parametrize(
    ("signer", "subject", "names", "usages", "says"),
    [
        (CLIENT, ("alice", "dev"), (), ("client auth",), ""),
        (CLIENT, ("alice",), ("a.example.com",), (SIGN, KEYS, "client auth"), ""),
        (CLIENT, ("alice",), (), ("client auth", "server auth"),
         "invalid usage for client certificate: server auth"),
        (CLIENT, ("alice",), (), (SIGN,),
         "missing required usage for client certificate: client auth"),
        (KUBELET, NODE, (), (SIGN, "client auth"), ""),
        (KUBELET, NODE, (), ("client auth", KEYS, SIGN), ""),
        (KUBELET, NODE, (), ("client auth",),
         "usages did not match [client auth digital signature key encipherment]"),
        (KUBELET, NODE, (), (SIGN, "client auth", "server auth"),
         "usages did not match [client auth digital signature key encipherment]"),
        (KUBELET, ("system:node:n",), (), (SIGN, "client auth"),
         "subject organization is not system:nodes"),
        (KUBELET, (*NODE, "dev"), (), (SIGN, "client auth"),
         "subject organization is not system:nodes"),
        (KUBELET, ("n", "system:nodes"), (), (SIGN, "client auth"),
         "subject common name does not begin with system:node:"),
        (KUBELET, NODE, ("a.example.com",), (SIGN, "client auth"),
         "DNS subjectAltNames are not allowed"),
        (KUBELET, NODE, ("10.0.0.1",), (SIGN, "client auth"),
         "IP subjectAltNames are not allowed"),
        (KUBELET, NODE, ("a@b.io",), (SIGN, "client auth"),
         "Email subjectAltNames are not allowed"),
        (KUBELET, NODE, ("spiffe://a",), (SIGN, "client auth"),
         "URI subjectAltNames are not allowed"),
        (SERVING, NODE, ("a.example.com", "10.0.0.1"), (SIGN, "server auth"), ""),
        (SERVING, NODE, ("10.0.0.1",), (SIGN, KEYS, "server auth"), ""),
        (SERVING, NODE, (), (SIGN, "server auth"), "DNS or IP subjectAltName is required"),
        (SERVING, NODE, ("a.io", "a@b.io"), (SIGN, "server auth"),
         "Email subjectAltNames are not allowed"),
        (SERVING, NODE, ("a.io", "spiffe://a"), (SIGN, "server auth"),
         "URI subjectAltNames are not allowed"),
        (SERVING, NODE, ("a.io",), (SIGN, "client auth"),
         "usages did not match [digital signature key encipherment server auth]"),
        (SERVING, ("n", "system:nodes"), ("a.io",), (SIGN, "server auth"),
         "subject common name does not begin with system:node:"),
        (SERVING, ("system:node:n",), ("a.io",), (SIGN, "server auth"),
         "subject organization is not system:nodes"),
        ("example.com/signer", NODE, (), (SIGN,), None),
        ("kubernetes.io/legacy-unknown", NODE, (), (SIGN,), None),
        ("kubernetes.io/kube-apiserver-serving", NODE, (), (SIGN,), None),
    ],
)  # fmt: skip
def test_requests(
    signer: str, subject: tuple[str, ...], names: Sequence[str], usages: Sequence[str],
    says: str | None,
) -> None:  # fmt: skip
    request = parsed(*subject, names=names)
    assert defect_of(signer, request, usages) == says
    if signer == KUBELET:
        assert is_kubelet_client(request, usages) is (says == "")
