"""Outcomes: what a probe pod did, and what is known of its node. Plain values.

Source: API docs "Pod Lifecycle" (phases, container states), `NodeSystemInfo`.
"""

from __future__ import annotations

import msgspec

MOST_OUTPUT = 4096
"""Characters of a probe's output that are kept."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Outcome of a probe pod.

    `has_ended` is False for one that had to be cut off; `error` is then, or for a pod that could
    not be created or started, why. `reason` is that of the container's end, such as OOMKilled.
    `output` is its log, truncated.
    """

    has_ended: bool = False
    exit_code: int | None = None
    reason: str = ""
    output: str = ""
    error: str = ""
    node: str = ""
    pod_ip: str = ""

    def values(self, key: str) -> tuple[str, ...]:
        """Return the values of the output's lines `KEY=VALUE`, in their order."""
        prefix = f"{key}="
        return tuple(
            line.removeprefix(prefix).strip()
            for line in self.output.splitlines()
            if line.startswith(prefix)
        )

    def value(self, key: str) -> str:
        """Return the last value of `KEY=VALUE`, empty without one."""
        return (self.values(key) or ("",))[-1]


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Node that a probe ran on: `boot_id` identifies this boot of its kernel."""

    name: str = ""
    kernel: str = ""
    boot_id: str = ""
    addresses: tuple[str, ...] = ()


def printable(text: str, most: int = MOST_OUTPUT) -> str:
    """Return text with control characters replaced, and truncated: a pod may print anything.

    Line breaks and tabs stay. What remains is legal in XML 1.0 and moves no terminal's cursor.
    """
    kept = "".join(
        character if character in "\n\t" or _is_plain(character) else "\N{REPLACEMENT CHARACTER}"
        for character in text[:most]
    )
    return kept + ("…" if len(text) > most else "")


def _is_plain(character: str) -> bool:
    code = ord(character)
    is_control = code < 0x20 or 0x7F <= code < 0xA0
    # Marks that reorder text could make a report read differently from what it says.
    is_direction = 0x202A <= code <= 0x202E or 0x2066 <= code <= 0x2069
    return not (is_control or is_direction or 0xD800 <= code <= 0xDFFF or code & 0xFFFE == 0xFFFE)
