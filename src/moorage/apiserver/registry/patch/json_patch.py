"""JSON patches (RFC 6902) and merge patches (RFC 7386)."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import jsonpatch
import jsonpointer
import msgspec

from moorage.api.errors import BadRequestError, InvalidError

MAX_OPERATIONS = 10_000
MAX_COPIED_BYTES = 3 * 1024 * 1024
"""Limit on the bytes that all `copy` operations of a patch copy: repeated copies double."""
_REJECTED = "the server rejected our request due to an error in our request"


def merge_patch(target: Any, patch: Any) -> Any:
    """Return the target with the patch merged in; null deletes. Neither is changed."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


class _ReplaceOperation(jsonpatch.ReplaceOperation):
    def apply(self, obj: Any) -> Any:
        pointer: Any = self.pointer
        operation: Any = self.operation
        parent, key = pointer.to_last(obj)
        if isinstance(parent, dict) and key is not None and key not in parent:
            parent[key] = operation["value"]
            return obj
        return super().apply(obj)


class _CopyOperation(jsonpatch.CopyOperation):
    def apply(self, obj: Any) -> Any:
        operation: Any = self.operation
        value = _copied(jsonpointer.resolve_pointer(obj, operation["from"]))
        add = jsonpatch.AddOperation({"op": "add", "path": operation["path"], "value": value})
        return add.apply(obj)


class _JsonPatch(jsonpatch.JsonPatch):
    operations = MappingProxyType(
        {
            **jsonpatch.JsonPatch.operations,
            "replace": _ReplaceOperation,
            "copy": _CopyOperation,
        }
    )

    def apply(self, obj: Any, in_place: bool = False, atomic: bool = False) -> Any:
        """Return the document after all operations. Raises ValueError when they copy too much.

        A failed patch leaves the original as it was unless `in_place`, so `atomic` adds nothing.
        """
        del atomic
        document = obj if in_place else _copied(obj)
        copied_bytes = 0
        # The library's type stubs have neither this attribute nor those of `copy`.
        for operation in self._ops:  # type: ignore[attr-defined]
            if isinstance(operation, jsonpatch.CopyOperation):
                source: Any = operation.operation
                copied_bytes += _size_at(document, source["from"])
                if copied_bytes > MAX_COPIED_BYTES:
                    raise ValueError("the operations copy more than a body may hold")
            document = operation.apply(document)
        return document


def _copied(document: Any) -> Any:
    """Return a copy via JSON, which is ten times as fast as `copy.deepcopy`."""
    return msgspec.json.decode(msgspec.json.encode(document))


def _size_at(document: Any, path: str) -> int:
    return len(msgspec.json.encode(jsonpointer.resolve_pointer(document, path)))


class FailedTestError(InvalidError):
    """A `test` operation of a patch does not hold."""


def apply_json_patch(document: Any, operations: Any) -> Any:
    """Return the document after the operations; the original is not changed.

    Raises BadRequestError when the patch is not a list of operations, InvalidError when one of them
    fails, and FailedTestError when that is a test.
    """
    if not isinstance(operations, list) or not all(isinstance(op, dict) for op in operations):
        raise BadRequestError(
            "error decoding patch: json: cannot unmarshal object into Go value of type "
            "[]handlers.jsonPatchOp"
        )
    try:
        return _JsonPatch(operations).apply(document)
    except jsonpatch.JsonPatchTestFailed as error:
        raise FailedTestError(_REJECTED, {}) from error
    except (
        jsonpatch.JsonPatchException,
        jsonpointer.JsonPointerException,
        KeyError,
        TypeError,
        ValueError,
    ) as error:
        raise rejected() from error


def rejected() -> InvalidError:
    """Return the error for every patch that cannot be applied."""
    return InvalidError(_REJECTED, {})
