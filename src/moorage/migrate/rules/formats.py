"""Formats of what is migrated: which program a text is for, and its documents.

A text is parsed under the bounds of `moorage.api.yaml_values` or of `toml_text`. Helm templates are
no YAML until they are rendered, and are left alone. Of a Go template of a TOML file, as k3s and
RKE2 have them for containerd, what is static is read.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from moorage.api.yaml_values import YamlError, parse_documents
from moorage.migrate.rules.compose import is_compose
from moorage.migrate.rules.containerd import is_containerd
from moorage.migrate.rules.crio import is_crio
from moorage.migrate.rules.docker import is_docker
from moorage.migrate.rules.podman import is_podman
from moorage.migrate.rules.toml_text import TomlError, TomlTooLargeError, parse_toml

MAX_BYTES = 8 * 1024 * 1024
"""Limit on the size of a YAML or JSON text. One of this size has more values than are allowed."""

_TOML_SUFFIXES = (".toml", ".conf", ".toml.tmpl")
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


_TOML_FORMATS = (
    (Format.CONTAINERD, is_containerd),
    (Format.CRIO, is_crio),
    (Format.PODMAN, is_podman),
)


class UnreadableError(ValueError):
    """A text that cannot be read; the message says where and why."""


class SkippedError(ValueError):
    """A text that is not for migration; the message says why and what to do."""


class Parsed(msgspec.Struct, frozen=True):
    """The documents of a text. All formats but manifests have one.

    `unread` says for a template what was left out.
    """

    format: Format
    documents: list[Any]
    unread: tuple[str, ...] = ()
    is_template: bool = False


def parse(name: str, text: str) -> Parsed:
    """Parse a text with the name of its file. Raises UnreadableError, SkippedError."""
    if len(text) > MAX_BYTES:
        raise SkippedError(f"it has more than {MAX_BYTES // 1024 // 1024} MiB; split it")
    if name.endswith(_TOML_SUFFIXES):
        return _toml(text)
    if not name.endswith(_YAML_SUFFIXES) and not text.lstrip().startswith("{"):
        try:
            parsed = _toml(text)
        except (UnreadableError, SkippedError):
            # Without a name that says so, what is no TOML is YAML.
            pass
        else:
            if parsed.format is not Format.OTHER or not _ANY_TEMPLATE.search(text):
                return parsed
    return _yaml(text)


def _toml(text: str) -> Parsed:
    unread: tuple[str, ...] = ()
    is_template = False
    try:
        try:
            document = parse_toml(text)
        except TomlTooLargeError:
            raise
        except TomlError:
            if not _ANY_TEMPLATE.search(text):
                raise
            static, unread = static_text(text)
            document, is_template = parse_toml(static), True
    except TomlTooLargeError as error:
        raise SkippedError(str(error)) from error
    except TomlError as error:
        raise UnreadableError(str(error)) from error
    for format_, is_it in _TOML_FORMATS:
        if is_it(document):
            return Parsed(format_, [document], unread, is_template)
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


# Go templates of TOML files: the text that is the same whatever the template is given.
#
# k3s and RKE2 make containerd's configuration of `config.toml.tmpl` and `config-v3.toml.tmpl`. What
# stands in a conditional block, or on a line with an action, depends on values that only they have.

# An action may span lines; one that is not closed reaches to the end.
_ACTION = re.compile(r"\{\{-?\s*(?P<word>[a-zA-Z]*)(?P<rest>[^}]*+(?:\}(?!\})[^}]*+)*+)(?:\}\}|\Z)")
_OPENING = frozenset({"if", "range", "with", "define", "block"})
_CLOSING = "end"
_HEADER = re.compile(r"[ \t]*\[")
_SHOWN = 60


def static_text(text: str) -> tuple[str, tuple[str, ...]]:
    """Return the static lines of a template, and a sentence for each part that is left out.

    Lines keep their numbers: what is left out is an empty line.
    """
    lines = text.split("\n")
    kept = list(lines)
    sentences: dict[str, None] = {}
    for first, last, action in _parts(text):
        for number in range(first, last + 1):
            kept[number] = ""
        if _HEADER.match(lines[first]) and last == first:
            last = _end_of_table(lines, first)
            kept[first : last + 1] = [""] * (last + 1 - first)
        where = f"line {first + 1}" if first == last else f"lines {first + 1} to {last + 1}"
        sentences[f"{where}: {action} is not read: it is a template's"] = None
    return "\n".join(kept), tuple(sentences)


def _parts(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield first and last line of each action outside of blocks, and of each block."""
    depth, start, opening = 0, 0, ""
    line, counted = 0, 0
    for match in _ACTION.finditer(text):
        line += text.count("\n", counted, match.start())
        counted = match.start()
        last = line + match[0].count("\n")
        word = match["word"]
        if depth == 0:
            start, opening = line, " ".join(match[0].split())[:_SHOWN]
        if word in _OPENING:
            depth += 1
        elif word == _CLOSING:
            depth = max(0, depth - 1)
        if depth == 0:
            yield start, last, opening
    if depth:
        yield start, text.count("\n"), opening


def _end_of_table(lines: list[str], header: int) -> int:
    following = range(header + 1, len(lines))
    return next((number for number in following if _HEADER.match(lines[number])), len(lines)) - 1
