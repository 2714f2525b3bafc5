"""How a command ended, as the error channel tells it.

    version 4 and later    a Status object, always
    before                 a sentence when it failed, nothing when it did not

Source: apimachinery `remotecommand` (`NonZeroExitCode`, cause `ExitCode`), `NewInternalError`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

_INTERNAL_ERROR = 500


@dataclass(frozen=True, slots=True)
class Exited:
    """The process ended by itself, or there is no code to tell: 0 then."""

    code: int = 0

    @property
    def sentence(self) -> str:
        """What failed, empty for nothing."""
        return f"command terminated with non-zero exit code: {self.code}" if self.code else ""

    def status(self) -> dict[str, Any]:
        """The Status object."""
        if not self.code:
            return {"metadata": {}, "status": "Success"}
        return {
            "metadata": {},
            "status": "Failure",
            "message": self.sentence,
            "reason": "NonZeroExitCode",
            "details": {"causes": [{"reason": "ExitCode", "message": str(self.code)}]},
        }


@dataclass(frozen=True, slots=True)
class Failed:
    """The runtime could not do it; `sentence` says what and why."""

    sentence: str

    def status(self) -> dict[str, Any]:
        """The Status object."""
        return {
            "metadata": {},
            "status": "Failure",
            "message": f"Internal error occurred: {self.sentence}",
            "reason": "InternalError",
            "details": {"causes": [{"message": self.sentence}]},
            "code": _INTERNAL_ERROR,
        }


Outcome = Exited | Failed


def encode(outcome: Outcome, *, as_json: bool) -> bytes:
    """What is written to the error channel; empty for nothing."""
    if as_json:
        return msgspec.json.encode(outcome.status())
    return outcome.sentence.encode()
