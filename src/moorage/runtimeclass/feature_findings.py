"""Feature findings of several nodes: which nodes agree, and the words for what was found."""

from __future__ import annotations

from collections.abc import Iterable

from moorage.api.runtime_profiles import SUPPORTED, UNKNOWN, UNSUPPORTED, RuntimeProfile

STATE_WORDS = {SUPPORTED: "yes", UNSUPPORTED: "no", UNKNOWN: "unknown"}
"""State of a feature → the word for it in a table."""


def alike(profiles: Iterable[RuntimeProfile]) -> dict[str, list[list[RuntimeProfile]]]:
    """Return the profiles of each handler, by name, in groups that found the same."""
    handlers: dict[str, dict[frozenset[tuple[str, str]], list[RuntimeProfile]]] = {}
    for profile in profiles:
        states = frozenset((feature.name, feature.state) for feature in profile.status.features)
        handlers.setdefault(profile.spec.handler, {}).setdefault(states, []).append(profile)
    return {handler: list(groups.values()) for handler, groups in sorted(handlers.items())}
