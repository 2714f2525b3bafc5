"""Decoding of custom resources: a parsed body becomes an object that has the structure's fields.

Metadata is decoded as that of any kind. The rest keeps the values of the body, without unknown
fields and with defaults; value validation comes later, with the other rules of the kind.
"""

from __future__ import annotations

import copy
import hashlib
from typing import Any, Final

import msgspec

from moorage.api.errors import BadRequestError, FieldError, InvalidError, TooLargeError
from moorage.apiserver.registry.custom.rules import Rule
from moorage.apiserver.registry.custom.structure import Structure, compile_fits, has_embedded, prune
from moorage.apiserver.registry.kind import Obj

_DIGEST_CHARS = 16


class CustomType:
    """One version of a custom resource: its structure and the rule of its values."""

    def __init__(self, name: str, kind: str, group: str, structure: Structure, rule: Rule) -> None:
        self.name = name
        self.kind = kind
        self.group = group
        self.structure = structure
        self.has_embedded = has_embedded(structure)
        self.digest = _digest(structure)
        """Differs between structures: what fits one may not fit the other."""
        self._rule = rule
        self._fits = compile_fits(structure, completes=True)
        self._fits_partially = compile_fits(structure, completes=False)

    def fit(self, obj: Obj, *, completes: bool = True) -> list[str]:
        """Prune an object in place and set its defaults; return an error per unknown field.

        Whole numbers become integers.
        `completes` is false for a configuration that is applied, which gets no defaults. Raises
        InvalidError for a value that is no object or list where the structure has one.
        """
        if (self._fits if completes else self._fits_partially)(obj):
            return []
        if not _has_containers(obj, self.structure):
            raise self._invalid(obj)
        set_whole_numbers(obj)
        unknown = prune(obj, self.structure)
        if completes:
            set_defaults(obj, self.structure)
        return [f'unknown field "{path}"' for path in unknown]

    def prune(self, obj: Obj) -> None:
        """Remove in place what the structure does not specify, of an object that was converted."""
        set_whole_numbers(obj)
        prune(obj, self.structure)
        remove_nulls(obj, self.structure)

    def refit(self, obj: Obj) -> None:
        """Prune an object that was stored, in place, and set its defaults."""
        set_whole_numbers(obj)
        prune(obj, self.structure)
        set_defaults(obj, self.structure)

    def errors(self, obj: Obj) -> list[FieldError]:
        """Return the errors of an object's values."""
        errors: list[FieldError] = []
        self._rule(obj, "", errors)
        return errors

    def _invalid(self, obj: Obj) -> InvalidError:
        metadata = obj.get("metadata")
        name = metadata.get("name", "") if isinstance(metadata, dict) else ""
        return InvalidError.of(self.kind, name, self.errors(obj), group=self.group)


def _digest(structure: Structure) -> str:
    text = msgspec.json.encode(structure, order="deterministic")
    return hashlib.sha256(text).hexdigest()[:_DIGEST_CHARS]


def _has_containers(value: Any, structure: Structure) -> bool:
    """Return whether every object and list of the structure is one in the value, or is null.

    An item of a list with keys is never null: its keys are needed to find it.
    """
    if isinstance(value, dict):
        if structure.type == "array":
            return False
        return all(
            _has_containers(member, inner)
            for name, member in value.items()
            if (inner := structure.properties.get(name) or structure.values) is not None
        )
    if isinstance(value, list):
        if structure.type == "object":
            return False
        items = structure.items
        if items is None:
            return True
        if structure.list_type == "map" and None in value and not items.has_default:
            return False
        return all(_has_containers(item, items) for item in value)
    return value is None or structure.type not in ("object", "array")


def check_custom_type(obj: Obj, name: str, group: str, api_version: str) -> None:
    """Raise for a body of another kind or version: custom resources must name both."""
    version, kind = obj.get("apiVersion", ""), obj.get("kind", "")
    if version != api_version:
        raise BadRequestError(
            f"the API version in the data ({version}) does not match the expected API version "
            f"({api_version})"
        )
    if kind != name:
        metadata = obj.get("metadata")
        of = metadata.get("name", "") if isinstance(metadata, dict) else ""
        error = FieldError.invalid("kind", kind, f"must be {name}")
        raise InvalidError.of(name, of, [error], group=group)


# Whole numbers of custom resources: 1.0 and 1e3 become 1 and 1000, as upstream answers them.
#
# A client that expects an integer may not read 1.0, and then reads no list with that resource.
# Source: Go encoding/json, which writes a float64 without a fraction as an integer.

_LEAST, _END = -(2**63), 2**63


def set_whole_numbers(value: dict[str, Any]) -> None:
    """Replace the whole floats in an object in place, at any depth; those beyond 64 bits stay."""
    # Not by recursion: fields without a structure may be as deep as a body can be.
    left: list[Any] = [value]
    while left:
        container = left.pop()
        members = container.items() if isinstance(container, dict) else enumerate(container)
        for key, member in members:
            if isinstance(member, float):
                if member.is_integer() and _LEAST <= member < _END:
                    container[key] = int(member)
            elif isinstance(member, dict | list):
                left.append(member)


# Defaulting of custom resources, within a budget of bytes.
#
# A list of empty objects whose fields have large defaults grows without bound: 15 KB of body came
# to gigabytes. Source: API docs "Defaulting", "Defaulting and Nullable".

MAX_DEFAULT_BYTES: Final = 3 * 1024 * 1024
"""As much as an object may have."""

_VALUE_BYTES: Final = 32
"""What a value costs in memory beside its text, at least."""


class _Budget:
    """What the defaults of one object may still add. Sizes are computed once for each default."""

    def __init__(self) -> None:
        self._left = MAX_DEFAULT_BYTES
        self._sizes: dict[int, int] = {}

    def copy(self, name: str, structure: Structure) -> Any:
        """Return a copy of a default, of a field or an item. Raises TooLargeError."""
        size = self._sizes.get(id(structure))
        if size is None:
            text = msgspec.json.encode(structure.default)
            values = 1 + text.count(b",") + text.count(b"{") + text.count(b"[")
            size = self._sizes[id(structure)] = len(text) + _VALUE_BYTES * values
        self._left -= size + len(name)
        if self._left < 0:
            raise TooLargeError(
                "Request entity too large: the defaults of the custom resource's schema add more "
                f"than {MAX_DEFAULT_BYTES} bytes to the object"
            )
        return copy.deepcopy(structure.default)


def set_defaults(obj: dict[str, Any], structure: Structure) -> None:
    """Set the defaults of absent fields in place, and of null ones that are not nullable.

    A null of a field that is not nullable and has no default is removed. Raises TooLargeError when
    the defaults together have more than 3 MiB.
    """
    _default(obj, structure, _Budget())


def remove_nulls(value: Any, structure: Structure) -> None:
    """Remove in place the nulls of fields that are neither nullable nor have a default."""
    if isinstance(value, dict):
        for name in list(value):
            inner = structure.properties.get(name) or structure.values
            if inner is None:
                continue
            if value[name] is not None or inner.is_nullable or inner.has_default:
                remove_nulls(value[name], inner)
            else:
                del value[name]
    elif isinstance(value, list) and structure.items is not None:
        for item in value:
            remove_nulls(item, structure.items)


def _default(value: Any, structure: Structure, budget: _Budget) -> None:
    if isinstance(value, dict):
        _default_object(value, structure, budget)
    elif isinstance(value, list) and structure.items is not None:
        for index, item in enumerate(value):
            if item is None and structure.items.has_default and not structure.items.is_nullable:
                value[index] = budget.copy("", structure.items)
            _default(value[index], structure.items, budget)


def _default_object(obj: dict[str, Any], structure: Structure, budget: _Budget) -> None:
    for name in list(obj):
        inner = structure.properties.get(name) or structure.values
        if inner is None:
            continue
        if obj[name] is not None or inner.is_nullable:
            _default(obj[name], inner, budget)
        elif inner.has_default:
            obj[name] = budget.copy(name, inner)
        else:
            del obj[name]
    for name, inner in structure.properties.items():
        if inner.has_default and name not in obj:
            obj[name] = budget.copy(name, inner)
            _default(obj[name], inner, budget)
