"""Pull errors, classified by skopeo's output.

Pure. Kubelets match some of these texts at the beginning; the others are containerd's. Source: CRI
errors `ErrRegistryUnavailable`, `ErrSignatureValidationFailed`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from moorage.engine.errors import EngineError, ExhaustedError, FailedError, NotFoundError

_LAST_MESSAGE = re.compile(r'level=(?:fatal|error) msg="((?:[^"\\]|\\.)*)"')
_LONGEST = 1000


def _not_found(image: str, _why: str) -> EngineError:
    return NotFoundError(
        f'failed to pull image "{image}": failed to resolve reference "{image}": {image}: not found'
    )


def _denied(image: str, why: str) -> EngineError:
    return FailedError(
        f'failed to pull image "{image}": failed to resolve reference "{image}": pull access '
        f"denied, repository does not exist or may require authorization: {why}"
    )


def _unavailable(image: str, why: str) -> EngineError:
    return FailedError(f'RegistryUnavailable: failed to pull image "{image}": {why}')


def _rejected(image: str, why: str) -> EngineError:
    return FailedError(f'SignatureValidationFailed: failed to pull image "{image}": {why}')


def _full(image: str, why: str) -> EngineError:
    return ExhaustedError(f'failed to pull image "{image}": no space left on device: {why}')


def _failed(image: str, why: str) -> EngineError:
    return FailedError(f'failed to pull image "{image}": {why}')


# The first match counts: more specific messages come first, since messages contain one another.
_CAUSES: tuple[tuple[re.Pattern[str], Callable[[str, str], EngineError]], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), make)
    for pattern, make in (
        (r"no space left on device|disk quota exceeded", _full),
        (r"source image rejected|signature (?:is|was) required|no signature", _rejected),
        (r"manifest unknown|name unknown|repository name not known", _not_found),
        (
            r"unauthori[sz]ed|authentication required|access to the resource is denied|forbidden"
            r"|invalid username/password|invalid status code.* 40[13]",
            _denied,
        ),
        (r"not found|invalid status code.* 404", _not_found),
        (
            r"pinging container registry|dial tcp|no such host|i/o timeout|connection reset"
            r"|connection refused|tls: |x509: |unexpected EOF|server misbehaving"
            r"|too ?many ?requests|status code.* (?:429|5\d\d)|received unexpected HTTP status: 5"
            r"|no progress|server gave HTTP response",
            _unavailable,
        ),
    )
)  # fmt: skip


def refusal(image: str, output: str) -> EngineError:
    """Return the error of a pull that failed with that output."""
    why = message_in(output)
    for pattern, make in _CAUSES:
        if pattern.search(why):
            return make(image, why)
    return _failed(image, why)


def message_in(output: str) -> str:
    """Return the last message of skopeo's log on one line; the whole output if it has none."""
    messages = _LAST_MESSAGE.findall(output)
    text = re.sub(r"\\(.)", r"\1", messages[-1]) if messages else output
    return " ".join(text.split())[:_LONGEST] or "skopeo failed without a message"
