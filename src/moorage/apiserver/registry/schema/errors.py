"""Decoding errors of request bodies, raised before the validation of their kind."""

from __future__ import annotations

_MOST = 100


class DecodeError(ValueError):
    """The body does not decode as an object of its type; the text is worded as upstream."""


class StrictErrors(list[str]):
    """Unknown and repeated fields, in order of occurrence (`unknown field "spec.x"`).

    The first hundred are kept. Source: `maxStrictErrors` of sigs.k8s.io/json.
    """

    def append(self, error: str) -> None:
        if len(self) < _MOST:
            super().append(error)
