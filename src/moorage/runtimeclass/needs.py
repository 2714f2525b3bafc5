"""Needs of a pod: what its runtime must offer, stated in words.

    needs  = word { "," word }             commas or blanks between words
    word   = "isolation=" level            at least that level; `kernel` is user-space-kernel
           | "network=none"                the feature no-network
           | feature                       a name of `moorage.runtimeclass.features`

A pod states them in an annotation, as a namespace does for its pods; policies list them.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from moorage.api.remembered import remembered
from moorage.runtimeclass.features import FEATURES
from moorage.runtimeclass.isolation import LEVELS, Isolation

MOST_WORDS = 64
_SHOWN = 80
_ISOLATION = "isolation="
_OWN_KERNEL = "kernel"
_NO_NETWORK = "network=none"
_NO_NETWORK_FEATURE = "no-network"
_HOST_NETWORK_FEATURE = "host-network"
_FAMILIES = ("capability-", "syscall-")

VOCABULARY = ", ".join((
    f"{_ISOLATION}LEVEL with LEVEL one of {', '.join((_OWN_KERNEL, *LEVELS))}",
    _NO_NETWORK,
    *(name for name in FEATURES if not name.startswith(_FAMILIES)),
    *(f"{family}NAME" for family in _FAMILIES),
))  # fmt: skip
"""All words, in one line."""


class NeedsError(ValueError):
    """Needs that cannot be understood, or that contradict each other."""


class Needs(msgspec.Struct, frozen=True):
    """What a runtime must offer: the least isolation, None for any, and features."""

    isolation: Isolation | None = None
    features: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return self.isolation is not None or bool(self.features)

    def __str__(self) -> str:
        return ", ".join(self.words)

    @property
    def words(self) -> tuple[str, ...]:
        """Return the needs as words, isolation first, then by name."""
        level = () if self.isolation is None else (f"{_ISOLATION}{self.isolation.label}",)
        return (*level, *sorted(map(_word, self.features)))


NO_NEEDS = Needs()


@remembered(1024)
def parse_needs(text: str) -> Needs:
    """Return the needs of a text. Raises NeedsError, which names the word and the vocabulary."""
    # Bounded: an annotation may have 256 KiB, all of them blanks.
    words = text.replace(",", " ").split(None, MOST_WORDS)
    if len(words) > MOST_WORDS:
        raise NeedsError(f"there are more than {MOST_WORDS} needs")
    return needs_of(words)


def needs_of(words: Iterable[str]) -> Needs:
    """Return the needs of words, all together. Raises NeedsError."""
    return united(_need(word) for word in words)


def united(all_needs: Iterable[Needs]) -> Needs:
    """Return needs that hold only if all the given ones do. Raises NeedsError if none can."""
    isolation: Isolation | None = None
    features: set[str] = set()
    for needs in all_needs:
        features |= needs.features
        if needs.isolation is not None and (isolation is None or isolation < needs.isolation):
            isolation = needs.isolation
    if features.issuperset((_NO_NETWORK_FEATURE, _HOST_NETWORK_FEATURE)):
        raise NeedsError(f"{_NO_NETWORK} and {_HOST_NETWORK_FEATURE} contradict each other")
    return Needs(isolation, frozenset(features))


def _need(word: str) -> Needs:
    if word in FEATURES:
        return Needs(features=frozenset((word,)))
    if word == _NO_NETWORK:
        return Needs(features=frozenset((_NO_NETWORK_FEATURE,)))
    if word.startswith(_ISOLATION):
        level = word.removeprefix(_ISOLATION)
        if level == _OWN_KERNEL:
            return Needs(Isolation.USER_SPACE_KERNEL)
        if level in LEVELS:
            return Needs(LEVELS[level])
    shown = word if len(word) <= _SHOWN else f"{word[:_SHOWN]}..."
    raise NeedsError(f"unknown need {shown!r}; the needs are {VOCABULARY}")


def _word(feature: str) -> str:
    return _NO_NETWORK if feature == _NO_NETWORK_FEATURE else feature
