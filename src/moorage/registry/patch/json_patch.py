"""JSON patch, with the liberty that Kubernetes' library takes: `replace` may add a map key.

All errors inside a patch are one refusal without details, as upstream's. Source: RFC 6902.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import jsonpatch
import jsonpointer

from moorage.api.errors import BadRequestError, InvalidError

MAX_OPERATIONS = 10_000


class _ReplaceOperation(jsonpatch.ReplaceOperation):
    def apply(self, obj: Any) -> Any:
        pointer: Any = self.pointer
        operation: Any = self.operation
        parent, key = pointer.to_last(obj)
        if isinstance(parent, dict) and key is not None and key not in parent:
            parent[key] = operation["value"]
            return obj
        return super().apply(obj)


class _JsonPatch(jsonpatch.JsonPatch):
    operations = MappingProxyType({**jsonpatch.JsonPatch.operations, "replace": _ReplaceOperation})


def apply_json_patch(document: Any, operations: Any) -> Any:
    """The document after the operations; the original is not changed.

    Raises BadRequestError when the patch is no list of operations, InvalidError when one of them
    cannot be carried out.
    """
    if not isinstance(operations, list) or not all(isinstance(op, dict) for op in operations):
        raise BadRequestError(
            "error decoding patch: json: cannot unmarshal object into Go value of type "
            "[]handlers.jsonPatchOp"
        )
    try:
        return _JsonPatch(operations).apply(document)
    except (
        jsonpatch.JsonPatchException,
        jsonpointer.JsonPointerException,
        KeyError,
        TypeError,
        ValueError,
    ) as error:
        raise rejected() from error


def rejected() -> InvalidError:
    """The one answer to every patch that cannot be applied."""
    return InvalidError("the server rejected our request due to an error in our request", {})
