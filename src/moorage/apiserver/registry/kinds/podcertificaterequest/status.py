"""Rules of the status of PodCertificateRequests: pending, then issued, denied or failed for good.

Source: certificates validation `ValidatePodCertificateRequestStatusUpdate` of Kubernetes 1.36.
The library of certificates is imported at its first use: most servers never see a request.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from moorage.api.certificates import pem_blocks
from moorage.api.clock import parse_time
from moorage.api.errors import FieldError
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.validation.conditions import condition_errors

if TYPE_CHECKING:
    from cryptography import x509

ISSUED, DENIED, FAILED = "Issued", "Denied", "Failed"
STATES = (ISSUED, DENIED, FAILED)
"""Conditions after which nothing changes."""

_CONDITIONS, _CHAIN = "status.conditions", "status.certificateChain"
_NOT_BEFORE, _NOT_AFTER, _REFRESH = "notBefore", "notAfter", "beginRefreshAt"
_MAX_CHAIN_BYTES = 100 * 1024
_MARGIN = timedelta(minutes=10)
_SHORTEST = timedelta(hours=1)
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+")
_NANOSECONDS = 1_000_000_000
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


def _invalid(path: str, detail: str) -> FieldError:
    """Return the error of a value that is not shown."""
    return FieldError(path, "FieldValueInvalid", f"Invalid value: {detail}")
