"""Garbage collection: objects whose owners are gone are deleted."""

from moorage.controllers.garbage.collector import GarbageCollector

__all__ = ["GarbageCollector"]
