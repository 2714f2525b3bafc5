"""What can be wrong with a request body, before any rule of its kind is asked."""

from __future__ import annotations

_MOST = 100


class DecodeError(ValueError):
    """The body cannot become an object of its type; the text is what Kubernetes would say."""


class StrictErrors(list[str]):
    """Unknown and repeated fields, in the order they were met (`unknown field "spec.x"`).

    The first hundred are kept. Source: `maxStrictErrors` of sigs.k8s.io/json.
    """

    def append(self, error: str) -> None:
        if len(self) < _MOST:
            super().append(error)
