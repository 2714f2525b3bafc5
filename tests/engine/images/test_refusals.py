from __future__ import annotations

import pytest

from moorage.engine.errors import EngineError, ExhaustedError, FailedError, NotFoundError
from moorage.engine.images.refusals import message_in, refusal


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
