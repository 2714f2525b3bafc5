"""PodCertificateRequests. Source: certificates validation of Kubernetes 1.36.

Who may issue, and when, is checked by `admission.certificates`.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from moorage.api import names
from moorage.api.certificates import pem_blocks
from moorage.api.clock import parse_time
from moorage.api.errors import FieldError
from moorage.apiserver.registry.columns.cells import NONE, label_text
from moorage.apiserver.registry.declare.columns import NAME, column, printer
from moorage.apiserver.registry.kind import (
    Kind,
    Obj,
    PartRules,
    SelectableField,
    Served,
    Strategy,
    status_subresource,
)
from moorage.apiserver.registry.preparation import drop_status, keep_all_but_status, keep_status
from moorage.apiserver.registry.validation.conditions import condition_errors
from moorage.apiserver.registry.validation.signers import is_kubernetes_signer, signer_name_errors

if TYPE_CHECKING:
    from cryptography import x509

    from moorage.api.certificate_requests import CertificateRequest

_MAX_UID_BYTES = 128
_MAX_REQUEST_BYTES = 10 * 1024
_HOUR_S, _DAY_S = 60 * 60, 24 * 60 * 60
_STUB = "spec.stubPKCS10Request"
_CURVES = ("secp256r1", "secp384r1", "secp521r1")
_RSA_BITS = (3072, 4096)
ISSUED, DENIED, FAILED = "Issued", "Denied", "Failed"
_CONDITIONS, _CHAIN = "status.conditions", "status.certificateChain"
_NOT_BEFORE, _NOT_AFTER, _REFRESH = "notBefore", "notAfter", "beginRefreshAt"
_MAX_CHAIN_BYTES = 100 * 1024
_NANOSECONDS = 1_000_000_000
_TYPES = "io.k8s.api.certificates.v1"
_SPEC = f"{_TYPES}.PodCertificateRequestSpec"
_LONGEST_S, _LONGEST_OF_KUBERNETES_S = 91 * _DAY_S, _DAY_S

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


STATES = (ISSUED, DENIED, FAILED)
"""Conditions after which nothing changes."""

_MARGIN = timedelta(minutes=10)
_SHORTEST = timedelta(hours=1)
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+")

_REQUIRED = {
    _NOT_BEFORE: "must be present and consistent with the issued certificate",
    _NOT_AFTER: "must be present and consistent with the issued certificate",
    _REFRESH: "must be present and in the range [notbefore+10min, notafter-10min]",
}


def validate_status(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update of the status."""
    before, after = old.get("status", {}), new.get("status", {})
    conditions = after.get("conditions", [])
    errors = [*_type_errors(conditions), *condition_errors(conditions, _CONDITIONS)]
    if errors:
        return errors
    if state_of(before):
        detail = "immutable after PodCertificateRequest is issued, denied, or failed"
        return [] if before == after else [_invalid("status", detail)]
    match state_of(after):
        case "Denied" | "Failed":
            if after.keys() <= {"conditions"}:
                return []
            detail = (
                "non-condition status fields must be empty when denying or failing the "
                "PodCertificateRequest"
            )
            return [_invalid("status", detail)]
        case "Issued":
            return _issued_errors(after, old.get("spec", {}))
        case _:
            detail = 'status is immutable unless transitioning to "Issued", "Denied", or "Failed"'
            return [] if before == after else [_invalid("status", detail)]


def state_of(status: Obj) -> str:
    """Return which of the final conditions is True, `""` for none."""
    for condition in status.get("conditions", []):
        if condition.get("type") in STATES and condition.get("status") == "True":
            return str(condition["type"])
    return ""


def _type_errors(conditions: list[Obj]) -> Iterator[FieldError]:
    known = 0
    for index, condition in enumerate(conditions):
        at, condition_type = f"{_CONDITIONS}[{index}]", condition.get("type", "")
        if condition_type not in STATES:
            yield FieldError.not_supported(f"{at}.type", condition_type, STATES)
            continue
        known += 1
        if known > 1:
            detail = 'There may be at most one condition with type "Issued", "Denied", or "Failed"'
            yield FieldError.invalid(f"{at}.type", condition_type, detail)
        if condition.get("status", "") != "True":
            yield FieldError.not_supported(f"{at}.status", condition.get("status", ""), ("True",))


def _issued_errors(status: Obj, spec: Obj) -> list[FieldError]:
    chain: str = status.get("certificateChain", "")
    if len(chain.encode()) > _MAX_CHAIN_BYTES:
        return [FieldError.too_long(_CHAIN, _MAX_CHAIN_BYTES)]
    blocks = list(pem_blocks(chain.encode()))
    defect, leaf = "", None
    if not blocks:
        defect = "issued certificate chain must contain at least one certificate"
    elif blocks[0].type != "CERTIFICATE":
        defect = "issued certificate chain must consist entirely of CERTIFICATE PEM blocks"
    else:
        leaf = _certificate(blocks[0].content)
    if leaf is None:
        detail = defect or "leaf certificate does not parse as valid X.509"
        return [FieldError.invalid(_CHAIN, chain, detail)]
    errors = list(_name_errors(leaf))
    if leaf.public_key() != _wanted_key(spec):
        detail = "leaf certificate was not issued to the requested public key"
        return [*errors, FieldError.invalid(_CHAIN, chain, detail)]
    errors += [
        FieldError.required(f"status.{field}", detail)
        for field, detail in _REQUIRED.items()
        if field not in status
    ]
    if errors:
        return errors
    if (error := _time_error(status, spec, leaf)) is not None:
        return [error]
    for block in blocks[1:]:
        if block.type != "CERTIFICATE":
            defect = "issued certificate chain must consist entirely of CERTFICATE PEM blocks"
        elif _certificate(block.content) is None:
            defect = "intermediate certificate does not parse as valid X.509"
        if defect:
            return [FieldError.invalid(_CHAIN, chain, defect)]
    return []


def _certificate(der: bytes) -> x509.Certificate | None:
    """Return a certificate whose extensions and key can be read, None for any other."""
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        certificate = x509.load_der_x509_certificate(der)
        certificate.public_key()
        _ = certificate.extensions, certificate.subject
    except (
        ValueError,
        UnsupportedAlgorithm,
        x509.DuplicateExtension,
        x509.InvalidVersion,
        x509.UnsupportedGeneralNameType,
    ):
        return None
    return certificate


def _wanted_key(spec: Obj) -> object:
    from moorage.api.certificate_requests import CertificateRequestError, parse_request

    try:
        return parse_request(base64.b64decode(spec.get("stubPKCS10Request", ""))).public_key
    except CertificateRequestError:
        return None


def _name_errors(leaf: x509.Certificate) -> Iterator[FieldError]:
    from cryptography import x509

    try:
        extension = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return
    for name in extension.value.get_values_for_type(x509.DNSName):
        if not name:
            detail = "leaf certificate should not contain empty DNSName"
            yield FieldError.invalid(_CHAIN, name, detail)
        if ".." in name:
            detail = "leaf certificate's DNSName should not contain '..'"
            yield FieldError.invalid(_CHAIN, name, detail)
        if name.startswith(".") or name.endswith("."):
            detail = "leaf certificate's DNSName should not start or end with '.'"
            yield FieldError.invalid(_CHAIN, name, detail)
    for address in extension.value.get_values_for_type(x509.RFC822Name):
        if not _EMAIL.fullmatch(address):
            detail = "leaf certificate should not contain invalid EmailAddress"
            yield FieldError.invalid(_CHAIN, address, detail)


def _time_error(status: Obj, spec: Obj, leaf: x509.Certificate) -> FieldError | None:
    start, end, refresh = (parse_time(status[field]) for field in _REQUIRED)
    lifetime = leaf.not_valid_after_utc - leaf.not_valid_before_utc
    longest_s = spec.get("maxExpirationSeconds", 0)
    if start != leaf.not_valid_before_utc:
        return _time_invalid(status, _NOT_BEFORE, _as_encoded("NotBefore"))
    if end != leaf.not_valid_after_utc:
        return _time_invalid(status, _NOT_AFTER, _as_encoded("NotAfter"))
    if lifetime < _SHORTEST:
        return _life_invalid(lifetime, "leaf certificate lifetime must be >= 1 hour")
    if lifetime > timedelta(seconds=longest_s):
        detail = f"leaf certificate lifetime must be <= spec.maxExpirationSeconds ({longest_s})"
        return _life_invalid(lifetime, detail)
    return _refresh_error(status, start, end, refresh)


def _refresh_error(
    status: Obj, start: datetime, end: datetime, refresh: datetime
) -> FieldError | None:
    if refresh < start + _MARGIN:
        return _time_invalid(status, _REFRESH, "must be at least 10 minutes after status.notBefore")
    if refresh > end - _MARGIN:
        return _time_invalid(status, _REFRESH, "must be at least 10 minutes before status.notAfter")
    return None


def _as_encoded(field: str) -> str:
    return f"must be set to the {field} time encoded in the leaf certificate"


def _time_invalid(status: Obj, field: str, detail: str) -> FieldError:
    return FieldError.invalid(f"status.{field}", status[field], detail)


def _life_invalid(lifetime: timedelta, detail: str) -> FieldError:
    nanoseconds = int(lifetime.total_seconds()) * _NANOSECONDS
    return FieldError.invalid(_CHAIN, nanoseconds, detail)


def _state_of(request: Obj) -> str:
    state = "Pending"
    for condition in request.get("status", {}).get("conditions", []):
        if condition.get("type") in STATES:
            state = condition["type"]
    return state


POD_CERTIFICATE_REQUEST = Kind(
    name="PodCertificateRequest",
    plural="podcertificaterequests",
    served=(Served("certificates.k8s.io", "v1", f"{_TYPES}.PodCertificateRequest"),),
    strategy=Strategy(
        prepare_create=drop_status,
        prepare_update=keep_status,
        validate=validate_pod_certificate_request,
        validate_update=validate_pod_certificate_request_update,
        parts={"status": PartRules(prepare=keep_all_but_status, validate=validate_status)},
        needs_revision_on_update=True,
    ),
    printer=printer(
        NAME,
        column("PodName", "spec.podName", of=_SPEC),
        column("ServiceAccountName", "spec.serviceAccountName", of=_SPEC),
        column("NodeName", "spec.nodeName", of=_SPEC),
        column("SignerName", "spec.signerName", of=_SPEC),
        column(
            "State", _state_of, description="Is the request Pending, Issued, Denied, or Failed?"
        ),
        column(
            "UnverifiedUserAnnotations",
            "spec.unverifiedUserAnnotations",
            of=_SPEC,
            absent=NONE,
            show=label_text,
            priority=1,
        ),
    ),
    selectable=tuple(
        SelectableField(f"spec.{field}", ("spec", field))
        for field in ("signerName", "podName", "nodeName")
    ),
    subresources=status_subresource(),
)
