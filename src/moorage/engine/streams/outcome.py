"""Command outcomes, as written to the error channel.

    version 4 and later    a Status object, always
    before                 a sentence on failure, nothing on success

Source: apimachinery `remotecommand` (`NonZeroExitCode`, cause `ExitCode`), `NewInternalError`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

_INTERNAL_ERROR = 500


@dataclass(frozen=True, slots=True)
class Exited:
    """Outcome of a process that exited; code 0 also stands for an unknown one."""

    code: int = 0

    @property
    def sentence(self) -> str:
        """Return the failure as a sentence, empty for success."""
        return f"command terminated with non-zero exit code: {self.code}" if self.code else ""

    def status(self) -> dict[str, Any]:
        """Return the Status object."""
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
    """Outcome of a failed runtime call; `sentence` names the call and the cause."""

    sentence: str

    def status(self) -> dict[str, Any]:
        """Return the Status object of an internal error."""
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
    """Return the bytes for the error channel; empty for success before version 4."""
    if as_json:
        return msgspec.json.encode(outcome.status())
    return outcome.sentence.encode()
