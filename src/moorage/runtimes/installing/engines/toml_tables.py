"""TOML tables and their keys: written for an engine, inserted into its files, and found again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from moorage.migrate.rules.handler_files import toml_key, toml_value


def write_table(path: tuple[str, ...], table: Mapping[str, Any]) -> str:
    """Return a table and the tables in it, each with its header."""
    values = {key: value for key, value in table.items() if not isinstance(value, Mapping)}
    lines = [f"[{'.'.join(map(toml_key, path))}]"]
    lines += [f"{toml_key(key)} = {toml_value(value)}" for key, value in values.items()]
    text = "".join(f"{line}\n" for line in lines)
    for key, value in table.items():
        if isinstance(value, Mapping):
            text += write_table((*path, key), value)
    return text


def merged(base: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return two documents as one: tables by key at every depth, `other`'s values first."""
    result = dict(base)
    for key, value in other.items():
        before = result.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            result[key] = merged(before, value)
        else:
            result[key] = value
    return result
