"""YAML request bodies, sent by server-side apply and accepted from any client."""

from __future__ import annotations

from typing import Any

from moorage.registry.schema.errors import DecodeError


def parse_yaml(body: bytes) -> tuple[Any, list[str]]:
    """Return the document as JSON values, and a complaint per repeated key.

    Raises DecodeError when the body is not YAML, has several documents, or exceeds a bound of
    `moorage.api.yaml_values`.
    """
    # Imported here: most servers never read YAML.
    from moorage.api.yaml_values import YamlError, parse_document

    try:
        document = parse_document(body)
    except YamlError as error:
        raise DecodeError(f"yaml: {error}") from error
    return document.value, document.repeated
