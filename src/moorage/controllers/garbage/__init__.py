"""Garbage collection: what nobody owns any more is deleted."""

from moorage.controllers.garbage.collector import GarbageCollector

__all__ = ["GarbageCollector"]
