"""Semantic versions: `semver('1.2.3')`. Source: API docs "Kubernetes Semver library", semver.org.

Overloads must differ in the kinds of their arguments for the CEL library, and quantities, versions
are both messages: the comparisons of `quantities.py` are those of versions too.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from moorage.apiserver.cel.library.declaring import Signature, Type, function, method
from moorage.apiserver.cel.library.opaque import QUANTITY

PREFIX = "v"
"""What distinguishes the text of a version from that of a quantity."""

_NUMBER = r"(0|[1-9]\d*)"
_PARTS = r"[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*"
_VERSION = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-({_PARTS}))?(?:\+({_PARTS}))?", re.ASCII
)
_LARGEST = 2**64 - 1


class Version(NamedTuple):
    """A version. Compared by its fields; a release comes after its previews."""

    major: int
    minor: int
    patch: int
    is_release: bool
    preview: tuple[tuple[bool, int, str], ...]


def functions() -> list[Signature]:
    """Return the signatures of the library."""
    text, version = Type.STRING, QUANTITY.cel
    return [
        function("semver", [text], version, _parsed),
        function("semver", [text, Type.BOOL], version, _parsed),
        function("isSemver", [text], Type.BOOL, _is_version),
        function("isSemver", [text, Type.BOOL], Type.BOOL, _is_version),
        method("major", [version], Type.INT, lambda value: version_of(value).major),
        method("minor", [version], Type.INT, lambda value: version_of(value).minor),
        method("patch", [version], Type.INT, lambda value: version_of(value).patch),
    ]


def is_version(value: Any) -> bool:
    """Return whether a value is a version, not a quantity."""
    return bool(value.text.startswith(PREFIX))


def version_of(value: Any) -> Version:
    """Return the version that a value stands for. Raises ValueError for a quantity."""
    if not is_version(value):
        raise ValueError("no such overload")
    return _version(value.text.removeprefix(PREFIX))


def _parsed(text: str, normalizes: bool = False) -> Any:
    plain = _normalized(text) if normalizes else text
    _version(plain)
    # The build says nothing about the order, and two versions that differ in it are equal.
    return QUANTITY(PREFIX + plain.partition("+")[0])


def _is_version(text: str, normalizes: bool = False) -> bool:
    try:
        _parsed(text, normalizes)
    except ValueError:
        return False
    return True


def _version(text: str) -> Version:
    """Parse a version. Raises ValueError."""
    match = _VERSION.fullmatch(text)
    if match is None:
        raise ValueError(f'Invalid semantic version "{text[:64]}"')
    numbers = [_number(digits) for digits in match.group(1, 2, 3)]
    preview = tuple(_identifier(part) for part in match[4].split(".")) if match[4] else ()
    return Version(numbers[0], numbers[1], numbers[2], not preview, preview)


def _number(digits: str) -> int:
    # Bounded before it is converted: longer texts take time that grows with their square.
    if len(digits) > len(str(_LARGEST)) or int(digits) > _LARGEST:
        raise ValueError(f'Invalid number in semantic version "{digits[:64]}"')
    return int(digits)


def _identifier(part: str) -> tuple[bool, int, str]:
    """Return a part of a preview for comparisons: numbers come before words."""
    if not part.isdigit():
        return True, 0, part
    if len(part) > 1 and part.startswith("0"):
        raise ValueError(f'Numeric PreRelease version must not contain leading zeroes "{part}"')
    return False, _number(part), ""


def _normalized(text: str) -> str:
    """Return a version without prefix and leading zeros, with three numbers. Raises ValueError."""
    parts = text.removeprefix("v").split(".", 2)
    for index, part in enumerate(parts):
        if len(part) > 1:
            stripped = part.lstrip("0")
            parts[index] = stripped if stripped[:1].isdigit() else f"0{stripped}"
    if len(parts) < 3:
        if any(sign in parts[-1] for sign in "+-"):
            raise ValueError("short version cannot contain PreRelease/Build meta data")
        parts += ["0"] * (3 - len(parts))
    return ".".join(parts)
