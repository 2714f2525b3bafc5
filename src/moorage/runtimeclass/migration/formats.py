"""Formats of what is migrated: which program a text is for, and its documents.

A text is parsed under the bounds of `moorage.api.yaml_values` or of `toml_text`. Helm templates are
no YAML until they are rendered, and are left alone.
"""

from __future__ import annotations

import enum
import re
from typing import Any

import msgspec

from moorage.api.yaml_values import YamlError, parse_documents
from moorage.runtimeclass.migration.compose import is_compose
from moorage.runtimeclass.migration.containerd import containerd_table
from moorage.runtimeclass.migration.crio import is_crio
from moorage.runtimeclass.migration.docker import is_docker
from moorage.runtimeclass.migration.podman import is_podman
from moorage.runtimeclass.migration.toml_text import TomlError, TomlTooLargeError, parse_toml

MAX_BYTES = 8 * 1024 * 1024
"""Limit on the size of a YAML or JSON text. One of this size has more values than are allowed."""

_TOML_SUFFIXES = (".toml", ".conf")
_YAML_SUFFIXES = (".yaml", ".yml", ".json")
SUFFIXES = (*_TOML_SUFFIXES, *_YAML_SUFFIXES)
"""How names of files end that are looked at in a directory."""

_TEMPLATE = re.compile(
    r"\{\{-?\s*(?:\.(?:Values|Release|Chart|Capabilities|Files)\b|(?:include|template|define)\s+\")"
)
_ANY_TEMPLATE = re.compile(r"\{\{|\{%")
_HELM = "it is a Helm template; render it: helm template CHART | moor migrate -"


class Format(enum.StrEnum):
    """What a text is."""

    MANIFESTS = "manifests"
    COMPOSE = "compose"
    DOCKER = "docker"
    PODMAN = "podman"
    CONTAINERD = "containerd"
    CRIO = "crio"
    OTHER = "other"


class UnreadableError(ValueError):
    """A text that cannot be read; the message says where and why."""


class SkippedError(ValueError):
    """A text that is not for migration; the message says why and what to do."""


class Parsed(msgspec.Struct, frozen=True):
    """The documents of a text. All formats but manifests have one."""

    format: Format
    documents: list[Any]


def parse(name: str, text: str) -> Parsed:
    """Parse a text with the name of its file. Raises UnreadableError, SkippedError."""
    if len(text) > MAX_BYTES:
        raise SkippedError(f"it has more than {MAX_BYTES // 1024 // 1024} MiB; split it")
    if name.endswith(_TOML_SUFFIXES):
        return _toml(text)
    if not name.endswith(_YAML_SUFFIXES) and not text.lstrip().startswith("{"):
        try:
            return _toml(text)
        except (UnreadableError, SkippedError):
            # Without a name that says so, what is no TOML is YAML.
            pass
    return _yaml(text)


def _toml(text: str) -> Parsed:
    try:
        document = parse_toml(text)
    except TomlTooLargeError as error:
        raise SkippedError(str(error)) from error
    except TomlError as error:
        raise UnreadableError(str(error)) from error
    if containerd_table(document) is not None:
        return Parsed(Format.CONTAINERD, [document])
    for format_, is_it in ((Format.CRIO, is_crio), (Format.PODMAN, is_podman)):
        if is_it(document):
            return Parsed(format_, [document])
    return Parsed(Format.OTHER, [])


def _yaml(text: str) -> Parsed:
    if _TEMPLATE.search(text):
        raise SkippedError(_HELM)
    try:
        documents = parse_documents(text)
    except YamlError as error:
        if _ANY_TEMPLATE.search(text):
            raise SkippedError("it is a template, not YAML; render it first") from error
        raise UnreadableError(f"it is not YAML: {error}") from error
    objects = [document for document in documents if isinstance(document, dict)]
    if len(documents) == 1 and objects and "kind" not in objects[0]:
        if is_compose(objects[0]):
            return Parsed(Format.COMPOSE, documents)
        if is_docker(objects[0]):
            return Parsed(Format.DOCKER, documents)
    if any("kind" in document and "apiVersion" in document for document in objects):
        return Parsed(Format.MANIFESTS, documents)
    return Parsed(Format.OTHER, [])
