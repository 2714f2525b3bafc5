"""What can be wrong with a request body, before any rule of its kind is asked."""

from __future__ import annotations


class DecodeError(ValueError):
    """The body cannot become an object of its type; the text is what Kubernetes would say."""


class StrictErrors(list[str]):
    """Unknown and repeated fields, in the order they were met (`unknown field "spec.x"`)."""
