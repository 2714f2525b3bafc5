"""Phases of a pod that are asked for everywhere. Source: API docs "Pod Lifecycle"."""

from __future__ import annotations

ENDED_PHASES = ("Succeeded", "Failed")
"""In which none of a pod's containers runs, or will run again."""
