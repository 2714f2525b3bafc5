"""Strategic merge patch: a merge patch that merges keyed lists by item.

Directives (`$patch`, `$retainKeys`, `$setElementOrder/…`, `$deleteFromPrimitiveList/…`) are read
from the patch and never stored. Source: API conventions "Strategic merge patch"; the list rules are
the schema's `x-kubernetes-patch-*`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from moorage.api.errors import BadRequestError, StatusError
from moorage.apiserver.registry.schema import Field, Schema, Type

_PATCH = "$patch"
_RETAIN = "$retainKeys"
_ORDER = "$setElementOrder/"
_DELETE = "$deleteFromPrimitiveList/"
_DIRECTIVES = (_PATCH, _RETAIN)

Map = dict[str, Any]


def strategic_merge(schema: Schema, type_name: str, original: Map, patch: Map) -> Map:
    """Return the original with the patch merged in; neither is changed.

    Raises BadRequestError for a malformed list of directives, StatusError (500, as upstream) for an
    invalid directive. Source: apiserver `interpretStrategicMergePatchError`.
    """
    return _Merger(schema).merge_map(schema[type_name], original, patch)


class _Merger:
    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def merge_map(self, type_: Type | None, original: Map, patch: Map) -> Map:
        directive = patch.get(_PATCH)
        if directive == "delete":
            return {}
        if directive == "replace":
            return _plain_map({key: value for key, value in patch.items() if key != _PATCH})
        if directive not in (None, "merge"):
            raise StatusError(f"unknown patch type: {directive} in map: {go_map(patch)}")
        _check_directives(patch)
        merged = dict(original)
        if _RETAIN in patch:
            merged = _retained(merged, patch)
        for key, value in patch.items():
            if key in _DIRECTIVES or key.startswith(_ORDER):
                continue
            if key.startswith(_DELETE):
                self._delete_values(merged, key.removeprefix(_DELETE), value)
            elif value is None:
                merged.pop(key, None)
            else:
                merged[key] = self._merge_value(type_, key, merged.get(key), value, patch)
        self._order_untouched(type_, merged, patch)
        return merged

    def _merge_value(
        self, type_: Type | None, key: str, present: Any, value: Any, patch: Map
    ) -> Any:
        field = type_.by_name.get(key) if type_ is not None else None
        if isinstance(value, dict):
            if field is not None and "replace" in field.strategies:
                return _plain(value)
            return self.merge_map(
                self._type_of(field), present if isinstance(present, dict) else {}, value
            )
        if isinstance(value, list) and field is not None and "merge" in field.strategies:
            items = present if isinstance(present, list) else []
            order = patch.get(_ORDER + key)
            if field.merge_key:
                return self._merge_keyed(field, items, value, order)
            return _merge_values(items, value, order)
        return _plain(value)

    def _merge_keyed(
        self, field: Field, present: list[Any], changes: list[Any], order: list[Any] | None
    ) -> list[Any]:
        key, type_ = field.merge_key, self._type_of(field)
        if any(isinstance(item, dict) and item.get(_PATCH) == "replace" and key not in item
               for item in changes):  # fmt: skip
            return [
                _plain(item) for item in changes if not (isinstance(item, dict) and _PATCH in item)
            ]
        merged: dict[Any, Map] = {item.get(key): item for item in present}
        _check_keyed_order(order, key)
        touched: list[Any] = []
        for item in changes:
            if not isinstance(item, dict) or not _is_scalar(item.get(key)):
                raise StatusError(f"map: {go_map(item)} does not contain declared merge key: {key}")
            identity, directive = item[key], item.get(_PATCH)
            if directive == "delete":
                merged.pop(identity, None)
                continue
            if directive == "replace":
                merged[identity] = _plain({k: v for k, v in item.items() if k != _PATCH})
            else:
                merged[identity] = self.merge_map(type_, merged.get(identity, {}), item)
            touched.append(identity)
        wanted = [item.get(key) for item in order] if order is not None else touched
        arranged = _arranged(list(merged), wanted, [item.get(key) for item in present])
        return [merged[identity] for identity in arranged]

    def _delete_values(self, merged: Map, key: str, values: Any) -> None:
        if isinstance(merged.get(key), list):
            gone = frozenset(values)
            merged[key] = [item for item in merged[key] if not (_is_scalar(item) and item in gone)]

    def _order_untouched(self, type_: Type | None, merged: Map, patch: Map) -> None:
        """Order the lists that the patch only has an order for."""
        for name, order in patch.items():
            key = name.removeprefix(_ORDER)
            if not name.startswith(_ORDER) or key in patch or not isinstance(merged.get(key), list):
                continue
            field = type_.by_name.get(key) if type_ is not None else None
            present = merged[key]
            if field is not None and field.merge_key:
                merge_key = field.merge_key
                _check_keyed_order(order, merge_key)
                by_key = {item.get(merge_key): item for item in present}
                wanted = [item.get(merge_key) for item in order]
                merged[key] = [by_key[i] for i in _arranged(list(by_key), wanted, list(by_key))]
            else:
                _check_scalars(present)
                _check_scalars(order)
                merged[key] = _arranged(present, order, present)

    def _type_of(self, field: Field | None) -> Type | None:
        if field is None or field.kind != "object" or field.container == "map":
            return None
        return self._schema[field.type]


def _check_directives(patch: Map) -> None:
    """Raise BadRequestError for directive lists that are not lists or have invalid items."""
    for key, value in patch.items():
        if key.startswith(_ORDER):
            if not isinstance(value, list):
                raise BadRequestError("invalid patch format of setElementOrder list")
        elif key.startswith(_DELETE):
            if not isinstance(value, list) or not all(map(_is_scalar, value)):
                raise BadRequestError("invalid patch format of primitive list")
        elif key == _RETAIN and (not isinstance(value, list) or not all(map(_is_scalar, value))):
            raise BadRequestError("invalid patch format of retainKeys")


def _check_keyed_order(order: list[Any] | None, key: str) -> None:
    for item in order or ():
        if not isinstance(item, dict) or not _is_scalar(item.get(key)):
            raise BadRequestError("invalid patch format of setElementOrder list")


def _check_scalars(values: Sequence[Any]) -> None:
    if not all(map(_is_scalar, values)):
        raise BadRequestError("invalid patch format of primitive list")


def _is_scalar(value: Any) -> bool:
    return isinstance(value, str | int | float)


def _retained(merged: Map, patch: Map) -> Map:
    keep = frozenset(patch[_RETAIN])
    extra = [key for key in patch if key != _RETAIN and key not in keep and patch[key] is not None]
    if extra:
        raise StatusError("the list of retainKeys must contain all fields present in the patch")
    return {key: value for key, value in merged.items() if key in keep}


def _merge_values(present: list[Any], added: list[Any], order: list[Any] | None) -> list[Any]:
    """Merge lists of scalars as sets."""
    _check_scalars(added)
    _check_scalars(order or ())
    merged = list(dict.fromkeys([*present, *added]))
    return _arranged(merged, order if order is not None else added, present)


def _arranged(items: Sequence[Any], wanted: Sequence[Any], before: Sequence[Any]) -> list[Any]:
    """Return items in the wanted order; items not in it keep their relative place.

    New items come before the existing ones at their position.
    """
    place = {identity: index for index, identity in enumerate(before)}
    present = frozenset(items)
    named = [identity for identity in dict.fromkeys(wanted) if identity in present]
    in_order = frozenset(named)
    others = [identity for identity in items if identity not in in_order]
    result: list[Any] = []
    next_named = next_other = 0
    while next_named < len(named) and next_other < len(others):
        identity = named[next_named]
        is_new = identity not in place
        if is_new or place[identity] < place.get(others[next_other], len(place)):
            result.append(identity)
            next_named += 1
        else:
            result.append(others[next_other])
            next_other += 1
    return [*result, *named[next_named:], *others[next_other:]]


def _plain(value: Any) -> Any:
    """Return a value without nulls and directives, as stored."""
    if isinstance(value, dict):
        return _plain_map(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value


def _plain_map(value: Map) -> Map:
    return {
        key: _plain(item)
        for key, item in value.items()
        if item is not None and key not in _DIRECTIVES and not key.startswith((_ORDER, _DELETE))
    }


def go_map(value: Any) -> str:
    """Return a map as Go prints it in the errors of a patch: `map[image:noname]`."""
    if not isinstance(value, dict):
        return msgspec.json.encode(value).decode()
    return "map[" + " ".join(f"{key}:{_go_text(value[key])}" for key in sorted(value)) + "]"


def _go_text(value: Any) -> str:
    if isinstance(value, dict):
        return go_map(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + " ".join(map(_go_text, value)) + "]"
    return "<nil>" if value is None else str(value)
