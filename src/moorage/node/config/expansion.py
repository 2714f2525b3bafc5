"""`$(NAME)` expansion in commands, arguments and environment variables.

`$$` is one dollar sign; a reference to an unknown name is left unchanged. Source: core/v1
Container.command, third_party/forked/golang/expansion.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from moorage.node.config.errors import ConfigError

# Limits of execve(2): 32 pages per string, 6 MiB in total. Nested references grow exponentially, so
# a text beyond the limits is refused before it is built.
MOST_OF_ONE = 128 * 1024
MOST_OF_ALL = 6 * 1024 * 1024

_REFERENCE = re.compile(r"\$(?:\$|\((?P<name>[^)]*)\))")
_SHOWN = 60


def expand(text: str, *values: Mapping[str, str]) -> str:
    """Replace the references in a text, each from the first mapping that has the name.

    Raises ConfigError when the result exceeds MOST_OF_ONE characters.
    """
    if "$" not in text:
        return text
    size = len(text)
    pieces: list[str] = []
    end = 0
    for match in _REFERENCE.finditer(text):
        replacement = _replacement(match, values)
        size += len(replacement) - len(match[0])
        if size > max(MOST_OF_ONE, len(text)):
            raise ConfigError(
                f"{text[:_SHOWN]!r} becomes longer than the {MOST_OF_ONE} bytes that a program can "
                "be given: use fewer or shorter $(NAME) references"
            )
        pieces += (text[end : match.start()], replacement)
        end = match.end()
    return "".join((*pieces, text[end:]))


def expand_all(texts: Iterable[str], *values: Mapping[str, str]) -> list[str]:
    """Expand the arguments of a command.

    Raises ConfigError beyond MOST_OF_ALL characters in total too.
    """
    expanded: list[str] = []
    size = 0
    for text in texts:
        expanded.append(expand(text, *values))
        size += len(expanded[-1])
        check_size(size, "the command")
    return expanded


def check_size(size: int, what: str) -> None:
    """Raise ConfigError when the total size of all strings exceeds what execve(2) accepts."""
    if size > MOST_OF_ALL:
        raise ConfigError(
            f"{what} is longer than the {MOST_OF_ALL} bytes that a program can be given"
        )


def _replacement(match: re.Match[str], values: Iterable[Mapping[str, str]]) -> str:
    name = match["name"]
    if name is None:
        return "$"
    for mapping in values:
        if name in mapping:
            return mapping[name]
    return match[0]


def expand_strictly(text: str, values: Mapping[str, str]) -> str:
    """Expand a text as `expand` does. Raises KeyError with the first name that has no value."""
    for match in _REFERENCE.finditer(text):
        name = match["name"]
        if name is not None and name not in values:
            raise KeyError(name)
    return expand(text, values)
