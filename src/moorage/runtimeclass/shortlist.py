"""Shortlists of classes: which ones can meet requirements at all, before nodes are looked at.

Classes are bits, the cheapest the lowest, so that what rules out most of fifty classes costs a few
intersections. Each set is made when it is first asked for: a node that flaps between features makes
no work for those that no pod needs. Hot path: bench/fitting.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from moorage.runtimeclass.isolation import Isolation
from moorage.runtimeclass.offer import Offer

_MOST_LISTS = 1000

ClassSet = int
"""Classes as bits of a number."""


class Shortlist:
    """Sets of the classes of one moment, which are given from cheap to dear."""

    def __init__(self, offers: Sequence[Offer]) -> None:
        self._offers = offers
        self.everything: ClassSet = (1 << len(offers)) - 1
        self._having: dict[str, ClassSet] = {}
        self._without: dict[str, ClassSet] = {}
        self._reaching: dict[Isolation, ClassSet] = {}
        self._named: dict[frozenset[str], ClassSet] = {}

    def having(self, feature: str) -> ClassSet:
        """Return the classes with a node on which a feature was found supported."""
        found = self._having.get(feature)
        if found is None:
            found = self._having[feature] = self._where(
                lambda offer: offer.supported.get(feature, 0) & offer.nodes
            )
        return found

    def without(self, feature: str) -> ClassSet:
        """Return the classes on whose nodes, all of them, a feature was found unsupported."""
        found = self._without.get(feature)
        if found is None:
            found = self._without[feature] = self._where(
                lambda offer: not offer.nodes & ~offer.unsupported.get(feature, 0)
            )
        return found

    def reaching(self, level: Isolation) -> ClassSet:
        """Return the classes whose isolation is known to be a level or stronger."""
        found = self._reaching.get(level)
        if found is None:
            found = self._reaching[level] = self._where(
                lambda offer: offer.isolation is not None and offer.isolation >= level
            )
        return found

    def named(self, names: frozenset[str]) -> ClassSet:
        """Return the classes with these names."""
        found = self._named.get(names)
        if found is None:
            if len(self._named) >= _MOST_LISTS:
                self._named.clear()
            found = self._named[names] = self._where(lambda offer: offer.name in names)
        return found

    def offers(self, classes: ClassSet) -> Iterator[Offer]:
        """Yield the offers of the classes of a set, the cheapest first."""
        while classes:
            lowest = classes & -classes
            yield self._offers[lowest.bit_length() - 1]
            classes ^= lowest

    def _where(self, is_in: Callable[[Offer], object]) -> ClassSet:
        return _bits(number for number, offer in enumerate(self._offers) if is_in(offer))


def _bits(numbers: Iterable[int]) -> ClassSet:
    bits = 0
    for number in numbers:
        bits |= 1 << number
    return bits
