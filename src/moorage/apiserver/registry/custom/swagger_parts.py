"""Parts of OpenAPI v2 documents: what other servers describe, joined to this server's document.

Of another server's document only the paths of its group and version count, and the definitions that
these lead to. A definition whose name is taken by a different one gets another name: `NAME_v2`.
Source: kube-aggregator `controllers/openapi/aggregator`, kube-openapi `pkg/aggregator` of
Kubernetes 1.36.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from moorage.api import bounds
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.openapi.protobuf import encode_swagger

_DEFINITIONS = "#/definitions/"
_PARAMETERS = "#/parameters/"
_KINDS = "x-kubernetes-group-version-kind"


class _Document(msgspec.Struct, frozen=True):
    paths: dict[str, msgspec.Raw] = {}
    definitions: dict[str, msgspec.Raw] = {}
    parameters: dict[str, msgspec.Raw] = {}


class SwaggerPart(msgspec.Struct, frozen=True):
    """The paths and definitions of one group and version; `digest` is that of the document."""

    digest: str
    paths: Obj
    definitions: Obj


def part_of(text: bytes, path: str) -> SwaggerPart:
    """Return the part of a document that is about a path: `/apis/GROUP/VERSION`.

    Raises ValueError for what is no document, or has too many values.
    """
    try:
        document = msgspec.json.decode(text, type=_Document)
        paths = {
            name: _decoded(raw)
            for name, raw in document.paths.items()
            if name.startswith(f"{path}/") or name.rstrip("/") == path.rpartition("/")[0]
        }
        paths = _with_parameters(paths, document.parameters)
        definitions: Obj = {}
        waiting = [paths]
        while waiting:
            for reference in _references(waiting.pop()):
                name = reference.removeprefix(_DEFINITIONS)
                if name in document.definitions and name not in definitions:
                    definitions[name] = _decoded(document.definitions[name])
                    waiting.append(definitions[name])
        excess = bounds.exceeded([paths, definitions])
        if not excess:
            encode_swagger({"paths": paths, "definitions": definitions})
    except (KeyError, TypeError, AttributeError, struct.error) as error:
        raise ValueError(f"OpenAPI document that has no form in protobuf: {error!r}") from error
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ValueError(f"no OpenAPI document: {error}") from error
    if excess:
        raise ValueError(f"OpenAPI document: {excess}")
    return SwaggerPart(hashlib.sha512(text).hexdigest(), paths, definitions)


def add_parts(own: bytes, joined: Obj, parts: Sequence[SwaggerPart]) -> None:
    """Add parts to what is joined to a document: `paths` and `definitions`.

    Paths that are there stay as they are.
    """
    document = msgspec.json.decode(own, type=_Document)
    for part in parts:
        names: dict[str, str] = {}
        for name, definition in part.definitions.items():
            names[name] = _free_name(name, definition, document, joined["definitions"])
        for name, definition in _renamed(part.definitions, names).items():
            if names[name] not in document.definitions:
                joined["definitions"].setdefault(names[name], definition)
        for path, item in _renamed(part.paths, names).items():
            if path not in document.paths:
                joined["paths"].setdefault(path, item)


def _decoded(raw: msgspec.Raw) -> Any:
    if bounds.may_exceed(bytes(raw)):
        raise ValueError(f"OpenAPI document: {bounds.TOO_MANY}")
    return msgspec.json.decode(raw)


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _references(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if key == "$ref" and isinstance(item, str):
                yield item
            else:
                yield from _references(item)


def _with_parameters(value: Any, parameters: Mapping[str, msgspec.Raw]) -> Any:
    """Return a value with the parameters of the document in the place of their references."""
    if isinstance(value, list):
        return [_with_parameters(item, parameters) for item in value]
    if not isinstance(value, dict):
        return value
    reference = value.get("$ref")
    if isinstance(reference, str) and reference.startswith(_PARAMETERS):
        raw = parameters.get(reference.removeprefix(_PARAMETERS))
        return value if raw is None else _decoded(raw)
    return {key: _with_parameters(item, parameters) for key, item in value.items()}


def _free_name(name: str, definition: Any, document: _Document, joined: Obj) -> str:
    """Return the name under which a definition is or can be, first the one it has."""
    wanted, number = name, 1
    while True:
        known: Any = joined.get(wanted)
        if known is None and wanted in document.definitions:
            known = msgspec.json.decode(document.definitions[wanted])
        if known is None or _without_kinds(known) == _without_kinds(definition):
            return wanted
        number += 1
        wanted = f"{name}_v{number}"


def _without_kinds(definition: Any) -> Any:
    if not isinstance(definition, dict):
        return definition
    return {key: value for key, value in definition.items() if key != _KINDS}


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    """Return a value whose references lead to the new names of definitions."""
    if isinstance(value, list):
        return [_renamed(item, names) for item in value]
    if not isinstance(value, dict):
        return value
    copied = {key: _renamed(item, names) for key, item in value.items()}
    reference = value.get("$ref")
    if isinstance(reference, str) and reference.startswith(_DEFINITIONS):
        name = reference.removeprefix(_DEFINITIONS)
        copied["$ref"] = f"{_DEFINITIONS}{names.get(name, name)}"
    return copied
