"""Names of signers."""

from __future__ import annotations

import pytest

from moorage.apiserver.registry.validation.signers import is_kubernetes_signer, signer_name_errors

FORM = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
SEGMENTS = "should be a domain with at least two segments separated by dots"
LABEL = "a lowercase RFC 1123 label must"
SUBDOMAIN = "a lowercase RFC 1123 subdomain must"
LONG_DOMAIN = ".".join(["a" * 63] * 4)


@pytest.mark.parametrize(
    ("signer", "says"),
    [
        ("example.com/signer", []),
        ("example.com/namespace.some.name", []),
        (f"{LONG_DOMAIN[:253]}/{'b' * 253}.{'c' * 63}", []),
        ("", ["Required value"]),
        ("example.com", [f'"example.com": {FORM}']),
        ("example.com/a/b", [f'"example.com/a/b": {FORM}']),
        ("example/a", [f'"example": {SEGMENTS}']),
        ("/a", [f'"": validating label "": {LABEL}', f'"": {SEGMENTS}']),
        ("Ex.Com/a", [f'"Ex.Com": validating label "Ex": {LABEL}']),
        ("example.com/", [f'"": validating label "": {SUBDOMAIN}']),
        ("example.com/a.B.C", [f'"a.B.C": validating label "B": {SUBDOMAIN}']),
        (f"{LONG_DOMAIN}/a", ["Too long: may not be more than 253 bytes"]),
        (f"example.com/{'.'.join(['b' * 250] * 3)}", ["Too long: may not be more than 571 bytes"]),
    ],
)
def test_names(signer: str, says: list[str]) -> None:
    errors = [str(error) for error in signer_name_errors(signer, "f")]
    assert len(errors) == len(says)
    for error, text in zip(errors, says, strict=True):
        assert error.removeprefix("f: ").removeprefix("Invalid value: ").startswith(text)


@pytest.mark.parametrize(
    ("signer", "expected"),
    [
        ("kubernetes.io/a", True),
        ("x.kubernetes.io/a", True),
        ("xkubernetes.io/a", False),
        ("example.com/kubernetes.io", False),
    ],
)
def test_reserved_domains(signer: str, *, expected: bool) -> None:
    assert is_kubernetes_signer(signer) is expected
