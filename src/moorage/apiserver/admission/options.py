"""Options of plugins: what their documents of configuration have in common.

Fields that a plugin does not know are refused, as kube-apiserver refuses them.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

_T = TypeVar("_T")


class ConfigurationError(ValueError):
    """A configuration cannot be used; the text says why."""


class Strict(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base of documents and their parts."""


def converted(value: Any, type_: type[_T]) -> _T:
    """Return a JSON value as a document. Raises ConfigurationError."""
    try:
        return msgspec.convert(value, type_)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ConfigurationError(str(error)) from error


def of_another_kind(api_version: str, kind: str, *wanted: str) -> ConfigurationError:
    """Return the error of a document that is of another kind. `wanted`: versions and kinds."""
    pairs = zip(wanted[::2], wanted[1::2], strict=True)
    usable = " or ".join(f"{version}, kind {name}" for version, name in pairs)
    return ConfigurationError(
        f"is of {api_version or 'no apiVersion'}, kind {kind or 'missing'}; use {usable}"
    )
