"""Garbage collection: deletes objects whose owners are gone."""

from moorage.controllers.garbage.collector import GarbageCollector

__all__ = ["GarbageCollector"]
