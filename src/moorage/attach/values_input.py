"""Values input: values of files and `--set` options, merged over the default ones as Helm does.

Maps are merged, anything else is replaced. Source: Helm docs "Values Files".
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from moorage.api.meta import Raw
from moorage.api.yaml_values import YamlError, parse_document
from moorage.attach.errors import ValuesError
from moorage.attach.host_paths import path_problems
from moorage.attach.values import Values


def read_values(files: Sequence[Path], settings: Sequence[str] = ()) -> Values:
    """Return the values of files and of `PATH=VALUE` settings; later ones take precedence.

    Raises ValuesError, which names the file, the setting or the field.
    """
    given: Raw = {}
    for path in files:
        given = merged(given, _read(path))
    for setting in settings:
        given = merged(given, _parsed(setting))
    whole = merged(msgspec.to_builtins(Values()), given)
    if text := _unprintable(whole):
        raise ValuesError(f"values: {text!r} has a character that cannot be printed")
    try:
        values = msgspec.convert(whole, Values)
    except msgspec.ValidationError as error:
        raise ValuesError(f"values: {error}") from error
    if problems := list(path_problems(values.agent)):
        raise ValuesError(f"values: {'; '.join(problems)}")
    return values


def _unprintable(value: Any) -> str:
    """Return a text with a line end or another control character; empty if there is none.

    `$` in a pattern admits a line end after the value.
    """
    if isinstance(value, str):
        return "" if value.isprintable() else value
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list | tuple):
        return next(filter(None, map(_unprintable, value)), "")
    return ""


def merged(base: Raw, over: Raw) -> Raw:
    """Return a map with another's entries over its own, maps below merged likewise.

    A null stands for the default, as in Helm, and is left out.
    """
    result = dict(base)
    for key, value in over.items():
        if value is None:
            continue
        present = result.get(key)
        is_map = isinstance(present, dict) and isinstance(value, dict)
        result[key] = merged(present, value) if is_map else value  # type: ignore[arg-type]
    return result


def _read(path: Path) -> Raw:
    try:
        document = parse_document(path.read_bytes()).value
    except OSError as error:
        raise ValuesError(f"{path}: {error.strerror}") from error
    except YamlError as error:
        raise ValuesError(f"{path}: {error}") from error
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ValuesError(f"{path}: not a map of values")
    return document


def _parsed(setting: str) -> Raw:
    """Return the map of a setting `a.b=VALUE`, whose value is YAML: `a.b=[x, y]`."""
    path, equals, text = setting.partition("=")
    keys = path.split(".")
    if not equals or not all(keys):
        raise ValuesError(f"--set takes PATH=VALUE such as agent.cri=unix:///…, not {setting!r}")
    try:
        value: Any = parse_document(text.encode()).value if text else ""
    except YamlError as error:
        raise ValuesError(f"--set {setting}: {error}") from error
    for key in reversed(keys):
        value = {key: value}
    result: Raw = value
    return result
