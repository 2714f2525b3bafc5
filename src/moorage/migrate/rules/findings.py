"""Findings of a migration: what it left out, and what a person must decide.

A text names the document and says why and what to do, as one line.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

import msgspec

from moorage.migrate.rules.changes import Operation


class Severity(enum.StrEnum):
    """How much a finding matters: `REFUSED` alone makes the command fail."""

    NOTE = "note"
    SKIPPED = "skipped"
    REFUSED = "refused"


class Finding(msgspec.Struct, frozen=True):
    """A sentence about a place: a file, and in it a document."""

    severity: Severity
    place: str
    text: str

    def __str__(self) -> str:
        return f"{self.place}: {self.severity}: {self.text}"


class Outcome(msgspec.Struct, frozen=True):
    """What a transformation gives for one document.

    `operations` change the document itself; `objects` are new documents; `notes` are the severity
    and text of each finding.
    """

    operations: Sequence[Operation] = ()
    objects: Sequence[dict[str, Any]] = ()
    notes: Sequence[tuple[Severity, str]] = ()


def note(text: str) -> tuple[Severity, str]:
    """Return a remark that needs no action before the migration goes on."""
    return Severity.NOTE, text


def refused(text: str) -> tuple[Severity, str]:
    """Return the reason why a document stays as it is until a person decides."""
    return Severity.REFUSED, text
