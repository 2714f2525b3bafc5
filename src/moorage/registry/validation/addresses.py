"""IP address validation. Source: apimachinery `validation.IsValidIP`."""

from __future__ import annotations

import ipaddress

from moorage.api.errors import FieldError


def ip_errors(address: str, path: str) -> list[FieldError]:
    """Return the errors of an address at a field path."""
    try:
        ipaddress.ip_address(address)
    except ValueError:
        message = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
        return [FieldError.invalid(path, address, message)]
    return []
