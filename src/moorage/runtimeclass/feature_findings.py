"""Feature findings of several nodes: which nodes agree, and the words for what was found."""

from __future__ import annotations

from collections.abc import Iterable

from moorage.api.runtime_profiles import (
    SUPPORTED,
    UNKNOWN,
    UNSUPPORTED,
    ProfileFeature,
    RuntimeProfile,
)

STATE_WORDS = {SUPPORTED: "yes", UNSUPPORTED: "no", UNKNOWN: "unknown"}
"""State of a feature → the word for it in a table."""

STOPPED_WITHOUT = {
    "syscall-statx": "`ls` and `stat` of Debian 12 and other images with coreutils 9 fail "
    '("Invalid argument"); busybox images work',
    "blocking-reads": "a server that reads before its client has sent may fail",
    "exec": "`kubectl exec` and exec probes fail",
}
"""Features that ordinary programs need → what fails without them."""


def alike(profiles: Iterable[RuntimeProfile]) -> dict[str, list[list[RuntimeProfile]]]:
    """Return the profiles of each handler, by name, in groups that found the same."""
    handlers: dict[str, dict[frozenset[tuple[str, str]], list[RuntimeProfile]]] = {}
    for profile in profiles:
        states = frozenset((feature.name, feature.state) for feature in profile.status.features)
        handlers.setdefault(profile.spec.handler, {}).setdefault(states, []).append(profile)
    return {handler: list(groups.values()) for handler, groups in sorted(handlers.items())}


def lacks(features: Iterable[ProfileFeature]) -> tuple[str, ...]:
    """Return a sentence for each feature whose lack stops programs that ask for nothing special."""
    return tuple(
        sorted(
            f"{feature.message}, so {STOPPED_WITHOUT[feature.name]}"
            for feature in features
            if feature.state == UNSUPPORTED and feature.name in STOPPED_WITHOUT
        )
    )
