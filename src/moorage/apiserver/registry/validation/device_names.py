"""Names in dynamic resource allocation: drivers, pools, requests, attributes, shares.

A function whose name starts with `declared` has the texts of the declared rule. Source: resource
validation of Kubernetes 1.36.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from moorage.api import names
from moorage.api.errors import FieldError
from moorage.apiserver.registry.validation.declared import DeclaredError, max_characters_error

_DRIVER_MAX = 63
_ID_MAX_BYTES = 32
_C_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_C_IDENTIFIER_MESSAGE = (
    "a valid C identifier must start with alphabetic character or '_', followed by a string of "
    "alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for "
    f"validation is '{_C_IDENTIFIER.pattern}')"
)
_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_CASELESS_MESSAGE = (
    "an RFC 1123 subdomain must consist of alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'Example.com', regex used for validation is "
    rf"'{_LABEL}(\.{_LABEL})*')"
)
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NOT_QUALIFIED = "a fully qualified name must be a domain and a name separated by a slash"


def label_errors(name: str, path: str) -> Iterator[FieldError]:
    """Validate the name of a request or a device: a DNS label."""
    for detail in names.dns_label_errors(name):
        yield FieldError.invalid(path, name, detail)


def driver_errors(driver: str, path: str) -> Iterator[FieldError]:
    """Validate a driver's name: a DNS subdomain of up to 63 bytes, in which case is ignored."""
    if not driver:
        yield FieldError.required(path)
        return
    if len(driver.encode()) > _DRIVER_MAX:
        yield FieldError.too_long(path, _DRIVER_MAX)
    for detail in names.dns_subdomain_errors(driver.lower()):
        yield FieldError.invalid(path, driver, detail)


def declared_driver_errors(driver: str, path: str) -> Iterator[FieldError]:
    """Validate a driver's name where upstream declares the rule."""
    if not driver:
        yield DeclaredError.required(path)
        return
    for detail in names.dns_subdomain_errors(driver.lower()):
        is_length = detail.startswith("must")
        yield DeclaredError.invalid(path, driver, detail if is_length else _CASELESS_MESSAGE)
    if len(driver) > _DRIVER_MAX:
        yield max_characters_error(path, _DRIVER_MAX)


def pool_errors(pool: str, path: str) -> Iterator[FieldError]:
    """Validate a pool's name: DNS subdomains separated by slashes."""
    if not pool:
        yield FieldError.required(path)
        return
    if len(pool.encode()) > names.SUBDOMAIN_MAX:
        yield FieldError.too_long(path, names.SUBDOMAIN_MAX)
    for part in pool.split("/"):
        for detail in names.dns_subdomain_errors(part):
            yield FieldError.invalid(path, part, detail)


def declared_pool_errors(pool: str, path: str) -> Iterator[FieldError]:
    """Validate a pool's name where upstream declares the rule."""
    if not pool:
        yield DeclaredError.required(path)
        return
    if len(pool.encode()) > names.SUBDOMAIN_MAX:
        yield DeclaredError.too_long(path, names.SUBDOMAIN_MAX)
    for index, part in enumerate(pool.split("/")):
        if not part:
            yield DeclaredError.invalid(path, pool, f"segment {index}: must not be empty")
            continue
        for detail in names.dns_subdomain_errors(part):
            yield DeclaredError.invalid(path, part, f"segment {index}: {detail}")


def attribute_name_errors(name: str, path: str) -> Iterator[FieldError]:
    """Validate the name of an attribute or a capacity: `[domain/]identifier`."""
    domain, slash, identifier = name.partition("/")
    if not slash:
        yield from _identifier_errors(name, path, FieldError)
        return
    if "/" in identifier:
        return  # As upstream, which compares with one and two parts only.
    if not domain:
        yield FieldError.invalid(path, "", "the domain must not be empty")
    else:
        yield from driver_errors(domain, path)
    if not identifier:
        yield FieldError.invalid(path, "", "the name must not be empty")
    else:
        yield from _identifier_errors(identifier, path, FieldError)


def declared_attribute_errors(name: str, path: str) -> Iterator[FieldError]:
    """Validate the name of an attribute in a constraint: `domain/identifier`."""
    domain, slash, identifier = name.partition("/")
    if not slash:
        yield from _identifier_errors(name, path, DeclaredError)
        yield DeclaredError.invalid(path, name, _NOT_QUALIFIED)
        return
    if "/" in identifier:
        return
    if not domain:
        yield DeclaredError.invalid(path, "", "prefix must not be empty")
    elif len(domain.encode()) > _DRIVER_MAX:
        yield DeclaredError.too_long(path, _DRIVER_MAX)
    for detail in names.dns_subdomain_errors(domain) if domain else ():
        yield DeclaredError.invalid(path, domain, f"prefix: {detail}")
    if not identifier:
        yield DeclaredError.invalid(path, "", "name must not be empty")
    else:
        yield from _identifier_errors(identifier, path, DeclaredError)


def _identifier_errors(identifier: str, path: str, error: type[FieldError]) -> Iterator[FieldError]:
    if len(identifier.encode()) > _ID_MAX_BYTES:
        yield error.too_long(path, _ID_MAX_BYTES)
    if not _C_IDENTIFIER.fullmatch(identifier):
        yield error.invalid(path, identifier, _C_IDENTIFIER_MESSAGE)


def share_errors(holder: dict[str, str], path: str) -> Iterator[FieldError]:
    """Validate the optional identifier of a share of a device."""
    share = holder.get("shareID")
    if share is not None and not _UUID.fullmatch(share):
        yield DeclaredError.invalid(
            f"{path}.shareID", share, "must be a lowercase UUID in 8-4-4-4-12 format"
        )
