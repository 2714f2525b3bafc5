"""Operation error: the base of failures that a user can act on, one sentence each."""

from __future__ import annotations


class OperationError(Exception):
    """An operation failed. The text says what failed, why, and what to do."""
