"""YAML request bodies, sent by server-side apply and accepted from any client."""

from __future__ import annotations

from typing import Any

from moorage.apiserver.registry.schema.decode import parse_json, repeated_fields
from moorage.apiserver.registry.schema.errors import DecodeError

_JSON_START = b"{"


def parse_yaml(body: bytes) -> tuple[Any, list[str]]:
    """Return the document as JSON values, and a complaint per repeated key.

    Raises DecodeError when the body is not YAML, has several documents, or exceeds a bound of
    `moorage.api.yaml_values`.
    """
    if body.startswith(_JSON_START) and (document := _parse_json(body)) is not None:
        return document, []
    # Imported here: most servers never read YAML.
    from moorage.api.yaml_values import YamlError, parse_document

    try:
        document = parse_document(body)
    except YamlError as error:
        raise DecodeError(f"yaml: {error}") from error
    return document.value, document.repeated


def _parse_json(body: bytes) -> Any:
    """Return a document of JSON, which is YAML and read in a tenth of the time; None for any other.

    Most clients apply JSON. What is wrong with a document is left to the parser of YAML to say.
    """
    try:
        document = parse_json(body)
        return None if repeated_fields(body, document) else document
    except DecodeError:
        return None
