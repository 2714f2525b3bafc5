"""Mutations of objects: apply configurations and JSON patches, as expressions give them.

Source: apiserver `policy/mutating/patch` of Kubernetes 1.36.
"""

from __future__ import annotations

import re

from moorage.api.errors import InvalidError
from moorage.apiserver.registry.codec import Codec
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.patch import MergeSchema, TypedPatchError, merge_configuration
from moorage.apiserver.registry.patch.json_patch import (
    MAX_OPERATIONS,
    FailedTestError,
    apply_json_patch,
)
from moorage.apiserver.registry.schema.errors import DecodeError

_UNTYPED = "failed to convert patch object to typed object: "
_UNKNOWN_FIELD = re.compile(r'unknown field "(.*)"')


class MutationError(ValueError):
    """A mutation has no value, or cannot be applied; the text is for the refusal."""


class ConfigurationMerge:
    """Merges apply configurations into objects of any type."""

    def __init__(self, codec: Codec, merge_schema: MergeSchema) -> None:
        self._codec = codec
        self._merge_schema = merge_schema

    def __call__(self, type_name: str, whole: Obj, configuration: Obj) -> Obj:
        """Return an object with the fields of a configuration. Raises MutationError."""
        if not type_name:
            raise MutationError(f"error applying patch: {whole['kind']} has no merge rules")
        envelope = {"apiVersion": whole["apiVersion"], "kind": whole["kind"]}
        try:
            decoded = self._codec.fit_partial(type_name, {**configuration, **envelope})
            if decoded.complaints:
                raise TypedPatchError(_UNTYPED + ", ".join(map(_shown, decoded.complaints)))
            merged = merge_configuration(self._merge_schema, type_name, whole, decoded.obj)
        except DecodeError as error:
            raise MutationError(f"error applying patch: {_UNTYPED}{error}") from error
        except TypedPatchError as error:
            raise MutationError(f"error applying patch: {error}") from error
        return {**merged, **envelope}


def _shown(complaint: str) -> str:
    """Return a strict error about an unknown field in the words of structured merge."""
    match = _UNKNOWN_FIELD.fullmatch(complaint)
    return complaint if match is None else f".{match[1]}: field not declared in schema"


def apply_operations(whole: Obj, operations: list[Obj]) -> object:
    """Return an object after a JSON patch; one whose test fails changes nothing.

    Raises MutationError for a patch that cannot be applied.
    """
    if len(operations) > MAX_OPERATIONS:
        raise MutationError(f"JSON Patch: more than {MAX_OPERATIONS} operations")
    try:
        return apply_json_patch(whole, operations)
    except FailedTestError:
        return whole
    except InvalidError as error:
        raise MutationError(f"JSON Patch: {error.__cause__}") from error
