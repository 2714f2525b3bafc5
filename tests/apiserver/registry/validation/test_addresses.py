"""Addresses and CIDR values."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.apiserver.registry.validation.addresses import (
    cidr_errors,
    cidr_warnings,
    ip_errors,
    ip_warnings,
    is_strict_subset,
    parse_cidr,
    parse_ip,
)

NO_IP = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
NO_CIDR = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("10.9.8.7", None),
        ("FD00:0::1", None),
        ("", NO_IP),
        ("10.9.8", NO_IP),
        ("10..8.7", NO_IP),
        ("256.1.1.1", NO_IP),
        ("fe80::1%eth0", NO_IP),
        ("010.9.8.7", "must not have leading 0s"),
        ("::ffff:1.2.3.4", "must not be an IPv4-mapped IPv6 address"),
    ],
)
def test_addresses(address: str, says: str | None) -> None:
    expected = [] if says is None else [f'f: Invalid value: "{address}": {says}']
    assert [str(error) for error in ip_errors(address, "f")] == expected
    assert ip_errors(address, "f", {address}) == []


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("10.0.0.0/8", None),
        ("FD00::/8", None),
        ("0.0.0.0/0", None),
        ("10.0.0.0", NO_CIDR),
        ("10.0.0.0/", NO_CIDR),
        ("10.0.0.0/33", NO_CIDR),
        ("10.0.0.0/" + "9" * 5000, NO_CIDR),
        ("10.0.0.0/255.0.0.0", NO_CIDR),
        ("10.0.0.0/8/8", NO_CIDR),
        ("10.0.0.0/-1", NO_CIDR),
        ("010.0.0.0/8", "must not have leading 0s in IP or prefix length"),
        ("10.0.0.0/08", "must not have leading 0s in IP or prefix length"),
        ("::ffff:10.0.0.0/104", "must not have an IPv4-mapped IPv6 address"),
        ("10.0.0.1/8", "must not have bits set beyond the prefix length"),
    ],
)
def test_cidr_values(value: str, says: str | None) -> None:
    errors = [str(error) for error in cidr_errors(value, "f")]
    if says is None:
        assert errors == []
    else:
        assert [error.rpartition(": ")[2] for error in errors] == [says.rpartition(": ")[2]]
    assert cidr_errors(value, "f", {value}) == []


@pytest.mark.parametrize(
    ("value", "warnings"),
    [
        ("10.9.8.7", []),
        ("no", []),
        ("010.9.8.7", ['f: non-standard IP address "010.9.8.7" is invalid: use "10.9.8.7"']),
        ("::ffff:1.2.3.4",
         ['f: non-standard IP address "::ffff:1.2.3.4" is invalid: use "1.2.3.4"']),
        ("FD00::1",
         ['f: IPv6 address "FD00::1" should be in RFC 5952 canonical format ("fd00::1")']),
    ],
)  # fmt: skip
def test_warnings_about_addresses(value: str, warnings: list[str]) -> None:
    assert ip_warnings(value, "f") == warnings


@pytest.mark.parametrize(
    ("value", "warnings"),
    [
        ("10.0.0.0/8", []),
        ("no", []),
        ("10.1.0.0/8",
         ['f: CIDR value "10.1.0.0/8" is ambiguous in this context (should be "10.0.0.0/8" or '
          '"10.1.0.0/32"?)']),
        ("10.0.0.0/08", ['f: non-standard CIDR value "10.0.0.0/08" is invalid: use "10.0.0.0/8"']),
        ("::ffff:10.0.0.0/104",
         ['f: non-standard CIDR value "::ffff:10.0.0.0/104" is invalid: use "10.0.0.0/8"']),
        ("FD00::/8",
         ['f: IPv6 CIDR value "FD00::/8" should be in RFC 5952 canonical format ("fd00::/8")']),
    ],
)  # fmt: skip
def test_warnings_about_cidr_values(value: str, warnings: list[str]) -> None:
    assert cidr_warnings(value, "f") == warnings


@given(st.ip_addresses())
def test_every_standard_address_is_parsed(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    assert parse_ip(str(address)) == address
    if isinstance(address, ipaddress.IPv4Address):
        assert parse_ip(".".join(f"{octet:03}" for octet in address.packed)) == address


@given(st.text(alphabet="0129abf:./%", max_size=24))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    if not ip_errors(text, "f"):
        assert parse_ip(text) == ipaddress.ip_address(text)
    if (parsed := parse_cidr(text)) is not None:
        assert parsed.network.prefixlen <= parsed.max_prefixlen


def test_strict_subsets() -> None:
    whole = ipaddress.ip_network("10.0.0.0/8")
    for text, expected in [
        ("10.1.0.0/16", True), ("10.0.0.0/8", False), ("0.0.0.0/0", False),
        ("11.0.0.0/16", False), ("fd00::/64", False),
    ]:  # fmt: skip
        assert is_strict_subset(ipaddress.ip_network(text), of=whole) is expected
