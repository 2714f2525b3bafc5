"""Types, errors and constants of the API, against recorded tables.

A wrong default or wire name in a typed object is a wrong reading of what clients wrote.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from types import ModuleType
from typing import Any

import msgspec

import moorage.api
from moorage.api import errors
from moorage.api.errors import StatusError
from tests.recording import assert_recorded

_MODULES = [
    importlib.import_module(f"moorage.api.{module.name}")
    for module in pkgutil.iter_modules(moorage.api.__path__)
]
_PLAIN = (str, int, float, bool, tuple, list, dict, set, frozenset)


def _defined(module: ModuleType, base: type) -> list[Any]:
    return [
        value for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, base)
        and value.__module__ == module.__name__
    ]  # fmt: skip


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.default_factory is not msgspec.NODEFAULT:
        return repr(field.default_factory())
    if field.required:
        return "required"
    value = field.default
    is_empty = isinstance(value, msgspec.Struct) and value == type(value)()
    return f"{type(value).__name__}()" if is_empty else repr(value)


def _shown(value: Any) -> str:
    is_set = isinstance(value, set | frozenset)
    return repr(sorted(value)) if is_set else repr(value)


def test_fields_of_types() -> None:
    table = {
        f"{type_.__name__}.{field.name}": f"{field.encode_name} = {_default(field)}"
        for module in _MODULES
        for type_ in _defined(module, msgspec.Struct)
        for field in msgspec.structs.fields(type_)
    }
    assert_recorded("api/types", table)


def test_errors() -> None:
    by_name = {
        type_.__name__: f"{type_.code} {type_.reason}" for type_ in _defined(errors, StatusError)
    }
    assert_recorded("api/errors", by_name)


def test_constants() -> None:
    table = {
        f"{module.__name__.removeprefix('moorage.api.')} {name}": _shown(value)
        for module in _MODULES
        for name, value in vars(module).items()
        if name.isupper()
        and not name.startswith(("_", "TYPE_CHECKING"))
        and isinstance(value, _PLAIN)
    }
    assert_recorded("api/constants", table)
