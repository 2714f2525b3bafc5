"""Audit IDs: they identify requests in answers, logs and audit events, but authorize nothing."""

from __future__ import annotations

from random import getrandbits


class AuditIds:
    """Makes IDs in the form of a UUID: random for the process, then counted."""

    def __init__(self) -> None:
        digits = f"{getrandbits(80):020x}"
        self._start = f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:]}-"
        self._number = getrandbits(40)

    def __call__(self) -> str:
        self._number += 1
        return f"{self._start}{self._number:012x}"
