"""Trust bundles and certificates in volumes."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.apiserver.registry.validation.volumes import volume_errors

BUNDLE, CERTIFICATE = "clusterTrustBundle", "podCertificate"
OWN = {"signerName": "example.com/s", "keyType": "ED25519", "credentialBundlePath": "a"}


def errors(*sources: dict[str, Any]) -> list[str]:
    volume = {"name": "v", "projected": {"sources": list(sources)}}
    return [str(error) for error in volume_errors([volume], "volumes")[1]]


@pytest.mark.parametrize(
    "source",
    [
        {BUNDLE: {"name": "anchors", "path": "a"}},
        {BUNDLE: {"name": "example.com:s:anchors", "path": "a"}},
        {BUNDLE: {"signerName": "example.com/s", "path": "a"}},
        {BUNDLE: {"signerName": "example.com/s", "path": "a",
                  "labelSelector": {"matchLabels": {"a": "b"}}}},
        {CERTIFICATE: OWN},
        {CERTIFICATE: {**OWN, "keyPath": "b", "certificateChainPath": "c",
                       "maxExpirationSeconds": 91 * 86400,
                       "userAnnotations": {"example.com/A": "b"}}},
    ],
)  # fmt: skip
def test_legal_projections(source: dict[str, Any]) -> None:
    assert errors(source) == []


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ({BUNDLE: {"path": "a"}},
         f"{BUNDLE}: Required value: either name or signerName must be specified"),
        ({BUNDLE: {"name": "a", "signerName": "b.c/d", "path": "a"}},
         f'{BUNDLE}: Invalid value: {{"Name":"a","SignerName":"b.c/d","LabelSelector":null,'
         '"Optional":null,"Path":"a"}: only one of name and signerName may be used'),
        ({BUNDLE: {"name": "", "path": "a"}},
         f"{BUNDLE}.name: Required value: must be a valid object name"),
        ({BUNDLE: {"name": "s:a_b", "path": "a"}},
         f'{BUNDLE}.name: Invalid value: "s:a_b": not a valid clustertrustbundlename: a lowercase '
         "RFC 1123 subdomain must"),
        ({BUNDLE: {"name": "a", "path": "a", "labelSelector": {}}},
         f"{BUNDLE}.labelSelector: Invalid value: {{}}: labelSelector must be unset if name is "
         "specified"),
        ({BUNDLE: {"signerName": "a", "path": "a"}},
         f'{BUNDLE}.signerName: Invalid value: "a": must be a fully qualified domain and path'),
        ({BUNDLE: {"name": "a"}}, f"{BUNDLE}.path: Required value"),
        ({BUNDLE: {"name": "a", "path": "/a"}},
         f'{BUNDLE}.path: Invalid value: "/a": must be a relative path'),
        ({CERTIFICATE: {**OWN, "signerName": ""}}, f"{CERTIFICATE}.signerName: Required value"),
        ({CERTIFICATE: {**OWN, "keyType": "RSA1024"}},
         f'{CERTIFICATE}.keyType: Unsupported value: "RSA1024": supported values: "RSA3072", '
         '"RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"'),
        ({CERTIFICATE: {**OWN, "maxExpirationSeconds": 3599}},
         f"{CERTIFICATE}.maxExpirationSeconds: Invalid value: 3599: if provided, "
         "maxExpirationSeconds must be >= 3600"),
        ({CERTIFICATE: {**OWN, "signerName": "kubernetes.io/s", "maxExpirationSeconds": 86401}},
         f"{CERTIFICATE}.maxExpirationSeconds: Invalid value: 86401: if provided, "
         "maxExpirationSeconds must be <= 86400"),
        ({CERTIFICATE: {**OWN, "userAnnotations": {"A": "b"}}},
         f'{CERTIFICATE}.userAnnotations: Invalid value: "a": must be a domain-prefixed key (such '
         'as "acme.io/foo")'),
        ({CERTIFICATE: {**OWN, "credentialBundlePath": ""}},
         f"{CERTIFICATE}: Required value: specify at least one of credentialBundlePath, keyPath, "
         "and certificateChainPath"),
        ({CERTIFICATE: {**OWN, "keyPath": "../k"}},
         f"{CERTIFICATE}.keyPath: Invalid value: \"../k\": must not contain '..'"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_projection(source: dict[str, Any], says: str) -> None:
    assert errors(source)[0].startswith(f"volumes[0].projected.sources[0].{says}")


def test_files_have_different_paths() -> None:
    bundle = {BUNDLE: {"name": "a", "path": "a"}}
    conflict = 'volumes[0].projected: Invalid value: "a": conflicting duplicate paths'
    assert errors({CERTIFICATE: OWN}, bundle) == [conflict]
    assert errors({CERTIFICATE: {**OWN, "keyPath": "a"}}) == [conflict]
