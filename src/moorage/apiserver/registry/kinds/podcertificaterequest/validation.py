"""Rules of new PodCertificateRequests. Source: certificates validation of Kubernetes 1.36.

The library of certificates is imported at its first use: most servers never see a request.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from moorage.api import names
from moorage.api.errors import FieldError
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.validation.signers import is_kubernetes_signer, signer_name_errors

if TYPE_CHECKING:
    from moorage.api.certificate_requests import CertificateRequest

_MAX_UID_BYTES = 128
_MAX_REQUEST_BYTES = 10 * 1024
_HOUR_S, _DAY_S = 60 * 60, 24 * 60 * 60
_LONGEST_S, _LONGEST_OF_KUBERNETES_S = 91 * _DAY_S, _DAY_S
_STUB = "spec.stubPKCS10Request"
_CURVES = ("secp256r1", "secp384r1", "secp521r1")
_RSA_BITS = (3072, 4096)
_NAMES: tuple[tuple[str, str, Callable[[str], list[str]]], ...] = (
    ("podName", "podUID", names.dns_subdomain_errors),
    ("serviceAccountName", "serviceAccountUID", names.dns_subdomain_errors),
    ("nodeName", "nodeUID", names.dns_subdomain_errors),
)


def validate_pod_certificate_request(request: Obj) -> list[FieldError]:
    """Return the errors of a new PodCertificateRequest."""
    spec = request.get("spec", {})
    errors = [
        *signer_name_errors(spec.get("signerName", ""), "spec.signerName"),
        *_annotation_errors(spec.get("unverifiedUserAnnotations", {})),
    ]
    for name_field, uid_field, errors_of in _NAMES:
        name = spec.get(name_field, "")
        errors += [
            FieldError.invalid(f"spec.{name_field}", name, detail) for detail in errors_of(name)
        ]
        errors += _uid_errors(spec.get(uid_field, ""), f"spec.{uid_field}")
    seconds = spec.get("maxExpirationSeconds")
    if seconds is None:
        return [*errors, FieldError.required("spec.maxExpirationSeconds", "must be set")]
    is_kubernetes = is_kubernetes_signer(spec.get("signerName", ""))
    longest_s = _LONGEST_OF_KUBERNETES_S if is_kubernetes else _LONGEST_S
    if not _HOUR_S <= seconds <= longest_s:
        detail = f"must be in the range [{_HOUR_S}, {longest_s}]"
        errors.append(FieldError.invalid("spec.maxExpirationSeconds", seconds, detail))
    return [*errors, *_stub_errors(spec.get("stubPKCS10Request", ""))]


def validate_pod_certificate_request_update(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update: the specification is immutable."""
    if new.get("spec") == old.get("spec"):
        return []
    return [FieldError.invalid("spec", new.get("spec"), "field is immutable")]


def _annotation_errors(annotations: dict[str, str]) -> Iterator[FieldError]:
    path = "spec.unverifiedUserAnnotations"
    for key in annotations:
        lower = key.lower()
        if not lower:
            yield FieldError.required(path)
            continue
        details = names.qualified_name_errors(lower)
        if not details and "/" not in lower:
            details = ['must be a domain-prefixed key (such as "acme.io/foo")']
        for detail in details:
            yield FieldError.invalid(path, lower, detail)
    if names.annotations_size(annotations) > names.ANNOTATIONS_MAX_BYTES:
        yield FieldError.too_long(path, names.ANNOTATIONS_MAX_BYTES)


def _uid_errors(uid: str, path: str) -> Iterator[FieldError]:
    if not uid:
        yield FieldError.invalid(path, uid, "must not be empty")
    if len(uid.encode()) > _MAX_UID_BYTES:
        yield FieldError.too_long(path, _MAX_UID_BYTES)


def _stub_errors(encoded: str) -> Iterator[FieldError]:
    if not encoded:
        detail = (
            "exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set"
        )
        yield _invalid("spec", detail)
        return
    der = base64.b64decode(encoded)
    if len(der) > _MAX_REQUEST_BYTES:
        yield FieldError.too_long(_STUB, _MAX_REQUEST_BYTES)
        return
    from moorage.api.certificate_requests import CertificateRequestError, parse_request

    try:
        parsed = parse_request(der)
    except CertificateRequestError:
        yield _invalid(_STUB, "must be a valid PKCS#10 CSR")
        return
    if (error := _key_error(parsed)) is not None:
        yield error
        return
    try:
        parsed.check_signature()
    except CertificateRequestError:
        yield _invalid(_STUB, "invalid signature")


def _key_error(parsed: CertificateRequest) -> FieldError | None:
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    key = parsed.public_key
    if isinstance(key, ec.EllipticCurvePublicKey):
        if key.curve.name in _CURVES:
            return None
        # The only other curve that upstream's library knows.
        if key.curve.name != "secp224r1":
            return _invalid(_STUB, "must be a valid PKCS#10 CSR")
        detail = "elliptic public keys must use curve P256, P384, or P521"
        return FieldError.invalid(_STUB, "curve P-224", detail)
    if isinstance(key, rsa.RSAPublicKey):
        if key.key_size in _RSA_BITS:
            return None
        detail = "RSA keys must have modulus size 3072 or 4096"
        return FieldError.invalid(_STUB, f"{key.key_size}-bit modulus", detail)
    if isinstance(key, ed25519.Ed25519PublicKey):
        return None
    detail = "unknown public key type; supported types are Ed25519, ECDSA, and RSA"
    return _invalid(_STUB, detail)


def _invalid(path: str, detail: str) -> FieldError:
    """Return the error of a value that is not shown."""
    return FieldError(path, "FieldValueInvalid", f"Invalid value: {detail}")
