from __future__ import annotations

import pytest

from moorage.engine.errors import EngineError, ExhaustedError, FailedError, NotFoundError
from moorage.engine.images.skopeo import message_in, refusal


@pytest.mark.parametrize(
    ("message", "kind", "begins"),
    [
        (
            "reading manifest 9 in r/a: manifest unknown: manifest unknown",
            NotFoundError,
            'failed to pull image "r/a:9": failed to resolve reference "r/a:9": r/a:9: not found',
        ),
        ("reading manifest 9 in r/a: name unknown", NotFoundError, "failed to pull"),
        (
            "reading manifest latest in r/a: unauthorized: authentication required",
            FailedError,
            'failed to pull image "r/a:9": failed to resolve reference "r/a:9": pull access denied',
        ),
        (
            "initializing source docker://r/a: requested access to the resource is denied",
            FailedError,
            'failed to pull image "r/a:9": failed to resolve reference "r/a:9": pull access denied',
        ),
        (
            "pinging container registry r: dial tcp 1.2.3.4:443: connect: connection refused",
            FailedError,
            "RegistryUnavailable: ",
        ),
        ("reading manifest: toomanyrequests: slow down", FailedError, "RegistryUnavailable: "),
        ("received unexpected HTTP status: 503 Service Unavailable", FailedError, "RegistryUn"),
        ("x509: certificate signed by unknown authority", FailedError, "RegistryUnavailable: "),
        (
            "Source image rejected: A signature was required, but no signature exists",
            FailedError,
            "SignatureValidationFailed: ",
        ),
        ("writing blob: write /d/x: no space left on device", ExhaustedError, "failed to pull"),
        ("something else", FailedError, 'failed to pull image "r/a:9": something else'),
    ],
)
def test_what_the_program_says_becomes_an_error(
    message: str, kind: type[EngineError], begins: str
) -> None:
    error = refusal("r/a:9", f'time="2026-01-02T03:04:05Z" level=fatal msg="{message}"\n')
    assert type(error) is kind
    assert error.sentence.startswith(begins)


def test_the_last_message_counts_and_is_one_line() -> None:
    output = 'level=warning msg="w"\nlevel=fatal msg="first"\nlevel=fatal msg="a \\"b\\" c"\n'
    assert message_in(output) == 'a "b" c'
    assert message_in("plain\n  words\n") == "plain words"
    assert message_in("") == "skopeo failed without a message"
    assert len(message_in("x" * 5000)) == 1000


NOT_FOUND = (
    NotFoundError,
    'failed to pull image "a": failed to resolve reference "a": a: not found',
)
DENIED = (
    FailedError,
    'failed to pull image "a": failed to resolve reference "a": pull access denied',
)
UNAVAILABLE = (FailedError, 'RegistryUnavailable: failed to pull image "a": ')
REJECTED = (FailedError, 'SignatureValidationFailed: failed to pull image "a": ')
FULL = (ExhaustedError, 'failed to pull image "a": no space left on device: ')
WORDS = {
    FULL: ("no space left on device", "disk quota exceeded"),
    REJECTED: (
        "source image rejected", "signature is required", "signature was required", "no signature",
    ),
    NOT_FOUND: (
        "manifest unknown", "name unknown", "repository name not known", "not found",
        "invalid status code from registry 404",
    ),
    DENIED: (
        "unauthorized", "unauthorised", "authentication required",
        "access to the resource is denied", "forbidden", "invalid username/password",
        "invalid status code from registry 401", "invalid status code from registry 403",
    ),
    UNAVAILABLE: (
        "pinging container registry r", "dial tcp 1.2.3.4:1", "no such host", "i/o timeout",
        "connection reset", "connection refused", "tls: handshake", "x509: no", "unexpected EOF",
        "server misbehaving", "too many requests", "toomanyrequests", "status code 429",
        "invalid status code from registry 502", "received unexpected HTTP status: 503",
        "no progress for 60 seconds", "server gave HTTP response to HTTPS client",
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("words", "outcome"), [(words, outcome) for outcome in WORDS for words in WORDS[outcome]]
)
def test_every_known_message_has_its_cause(
    words: str, outcome: tuple[type[EngineError], str]
) -> None:
    kind, begins = outcome
    for message in (f"it failed: {words}: why", f"it failed: {words.upper()}"):
        error = refusal("a", message)
        assert type(error) is kind
        assert error.sentence.startswith(begins)
        assert kind is NotFoundError or error.sentence.endswith(message)
