"""Files that options of the API server name: read whole, within a bound."""

from __future__ import annotations

from pathlib import Path

_LONGEST_BYTES = 1024 * 1024


class OptionFileError(ValueError):
    """A file cannot be read, or is too long; the text begins with its path."""


def read_option_file(path: Path) -> bytes:
    """Return what is in a file. Raises OptionFileError."""
    try:
        with path.open("rb") as file:
            content = file.read(_LONGEST_BYTES + 1)
    except OSError as error:
        raise OptionFileError(f"{path} cannot be read: {error.strerror}") from error
    if len(content) > _LONGEST_BYTES:
        raise OptionFileError(f"{path} is longer than {_LONGEST_BYTES} bytes")
    return content
