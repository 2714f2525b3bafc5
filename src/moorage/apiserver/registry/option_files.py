"""Files that options of the API server name: read whole, within bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_LONGEST_BYTES = 1024 * 1024


class OptionFileError(ValueError):
    """A file cannot be read, or is too long; the text begins with its path."""


class DocumentError(ValueError):
    """A text is not one YAML document with each key once."""


def read_option_file(path: Path) -> bytes:
    """Return the content of a file. Raises OptionFileError."""
    try:
        with path.open("rb") as file:
            content = file.read(_LONGEST_BYTES + 1)
    except OSError as error:
        raise OptionFileError(f"{path} cannot be read: {error.strerror}") from error
    if len(content) > _LONGEST_BYTES:
        raise OptionFileError(f"{path} is longer than {_LONGEST_BYTES} bytes")
    return content


def parse_option_document(text: bytes) -> Any:
    """Return the value of a YAML or JSON document. Raises DocumentError.

    A key that stands twice in a map is refused, as kube-apiserver refuses it.
    """
    # Imported here: few servers have such a file.
    from moorage.api.yaml_values import YamlError, parse_document

    try:
        document = parse_document(text)
    except YamlError as error:
        raise DocumentError(f"is not YAML: {error}") from error
    if document.repeated:
        raise DocumentError("; ".join(document.repeated))
    return document.value
