"""Whole numbers of custom resources: 1.0 and 1e3 become 1 and 1000, as upstream answers them.

A client that expects an integer may not read 1.0, and then reads no list with that resource.
Source: Go encoding/json, which writes a float64 without a fraction as an integer.
"""

from __future__ import annotations

from typing import Any

_LEAST, _END = -(2**63), 2**63


def set_whole_numbers(value: dict[str, Any]) -> None:
    """Replace the whole floats in an object in place, at any depth; those beyond 64 bits stay."""
    # Not by recursion: fields without a structure may be as deep as a body can be.
    left: list[Any] = [value]
    while left:
        container = left.pop()
        members = container.items() if isinstance(container, dict) else enumerate(container)
        for key, member in members:
            if isinstance(member, float):
                if member.is_integer() and _LEAST <= member < _END:
                    container[key] = int(member)
            elif isinstance(member, dict | list):
                left.append(member)
