"""ClusterTrustBundles."""

from __future__ import annotations

from tests.apiserver.registry.kinds.rows import columns, row
from tests.apiserver.registry.rules import changed, creations, update_complaint
from tests.certificates import certificate_pem, key_pem

KIND = "ClusterTrustBundle"
NAME, SIGNER, BUNDLE = "metadata.name", "spec.signerName", "spec.trustBundle"
A = certificate_pem("a", is_authority=True).decode()
B = certificate_pem("b", is_authority=True).decode()
LEAF = certificate_pem().decode()
HEADERS = A.replace("E-----\n", "E-----\nK: v\n\n", 1)
MALFORMED = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n"


def omitted(detail: str) -> str:
    return f'{BUNDLE}: Invalid value: "<value omitted>": {detail}'


test_rules = creations(KIND, cases=[
    ({}, None),
    ({BUNDLE: f"text\n{A}more\n{B}"}, None),
    ({BUNDLE: ""}, omitted("at least one trust anchor must be provided")),
    ({BUNDLE: "text"}, omitted("at least one trust anchor must be provided")),
    ({BUNDLE: A + B + A}, omitted("duplicate trust anchor (indices [0 2])")),
    ({BUNDLE: A + LEAF}, omitted("entry 1 does not have the CA bit set")),
    ({BUNDLE: key_pem().decode()}, omitted("entry 0 has bad block type: PRIVATE KEY")),
    ({BUNDLE: HEADERS}, omitted("entry 0 has PEM block headers")),
    ({BUNDLE: MALFORMED + A + A}, omitted("entry 0 does not parse as X.509")),
    ({BUNDLE: "x" * (1024 * 1024 + 1)},
     f"{BUNDLE}: Too long: may not be more than 1048576 bytes"),
    ({NAME: "a:b"},
     f'{NAME}: Invalid value: "a:b": ClusterTrustBundle without signer name must not have ":" '
     "in its name"),
    ({NAME: "A"}, f'{NAME}: Invalid value: "A": a lowercase RFC 1123 subdomain must'),
    ({NAME: "example.com:s:b", SIGNER: "example.com/s"}, None),
    ({NAME: "b", SIGNER: "example.com/s"},
     f'{NAME}: Invalid value: "b": ClusterTrustBundle for signerName example.com/s must be '
     "named with prefix example.com:s:"),
    ({NAME: "example.com:s:B", SIGNER: "example.com/s"},
     f'{NAME}: Invalid value: "example.com:s:B": a lowercase RFC 1123 subdomain must'),
    ({NAME: "s:b", SIGNER: "s"},
     f'{SIGNER}: Invalid value: "s": must be a fully qualified domain and path'),
])  # fmt: skip


def test_the_signer_is_immutable() -> None:
    sets = {NAME: "example.com:s:b", SIGNER: "example.com/s"}
    old = changed(KIND, sets)
    assert update_complaint(KIND, changed(KIND, {**sets, BUNDLE: A}), old) is None
    new = changed(KIND, {**sets, SIGNER: "other.com/s"})
    assert f'{SIGNER}: Invalid value: "other.com/s": field is immutable' in str(
        update_complaint(KIND, new, old)
    )


def test_a_bundle_that_stays_is_not_parsed_again() -> None:
    old = changed(KIND, {BUNDLE: MALFORMED})
    new = changed(KIND, {BUNDLE: MALFORMED, "metadata.labels": {"a": "b"}})
    assert update_complaint(KIND, new, old) is None
    new = changed(KIND, {BUNDLE: MALFORMED * 2})
    assert "entry 1 does not parse" in str(update_complaint(KIND, new, old))


def test_row() -> None:
    assert columns(KIND) == "Name SignerName |"
    assert row(KIND, {}) == ["x", "<none>"]
    assert row(KIND, {"spec": {"signerName": "a.b/c"}}) == ["x", "a.b/c"]
