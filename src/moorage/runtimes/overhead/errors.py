"""Errors of measured overhead."""

from __future__ import annotations


class MeasurementError(Exception):
    """Overhead could not be measured, applied or drawn; the text says why and what to do."""
