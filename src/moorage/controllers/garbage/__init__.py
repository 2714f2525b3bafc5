"""Garbage collection: deletes objects whose owners are gone or deleted in the foreground."""

from moorage.controllers.garbage.collector import GarbageCollector

__all__ = ["GarbageCollector"]
