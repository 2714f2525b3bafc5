"""Patches of objects: the four patch types, and field ownership (managedFields).

Pure functions on plain values. Objects are canonical dicts of one API version; their types define
how lists and maps merge.
"""

from moorage.apiserver.registry.patch.apply import TypedPatchError, apply, merge_configuration
from moorage.apiserver.registry.patch.json_patch import apply_json_patch, merge_patch
from moorage.apiserver.registry.patch.managed import (
    Change,
    CreatedFields,
    ManagedFields,
    Manager,
    Version,
    is_same_but_for_times,
    track_update,
)
from moorage.apiserver.registry.patch.merge_schema import MergeSchema
from moorage.apiserver.registry.patch.strategic import strategic_merge

__all__ = [
    "Change",
    "CreatedFields",
    "ManagedFields",
    "Manager",
    "MergeSchema",
    "TypedPatchError",
    "Version",
    "apply",
    "apply_json_patch",
    "is_same_but_for_times",
    "merge_configuration",
    "merge_patch",
    "strategic_merge",
    "track_update",
]
