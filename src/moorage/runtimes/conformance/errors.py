"""Errors of conformance tests."""

from __future__ import annotations


class ConformanceError(Exception):
    """A class cannot be tested; the text says why and what to do."""
