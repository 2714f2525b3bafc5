"""`$(NAME)` references in commands, arguments and variables.

`$$` stands for one dollar sign, a reference to an unknown name stays as it is written. Source:
core/v1 Container.command, third_party/forked/golang/expansion.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_REFERENCE = re.compile(r"\$(?:\$|\((?P<name>[^)]*)\))")


def expand(text: str, *values: Mapping[str, str]) -> str:
    """The text with its references replaced from the first mapping that has the name."""

    def replacement(match: re.Match[str]) -> str:
        name = match["name"]
        if name is None:
            return "$"
        for mapping in values:
            if name in mapping:
                return mapping[name]
        return match[0]

    return _REFERENCE.sub(replacement, text) if "$" in text else text


def expand_strictly(text: str, values: Mapping[str, str]) -> str:
    """As `expand`, but raises KeyError with the first name that has no value."""
    for match in _REFERENCE.finditer(text):
        name = match["name"]
        if name is not None and name not in values:
            raise KeyError(name)
    return expand(text, values)
