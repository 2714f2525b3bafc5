"""Verdicts on pods by what decides about them: pods of one template get the same, found once.

Thousands may wait, and a change of a node is a question about each.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import msgspec

from moorage.api.runtime_group import HELD_FOR_ANNOTATION
from moorage.controllers.runtimegates.verdict import Json, Verdict, judge
from moorage.runtimeclass.class_index import ClassIndex

MOST = 4096
"""Verdicts that are kept: where nodes stay as they are, pods that come and go would add to them."""


class Verdicts:
    """Verdicts by the state of an index, each kept until that changes, or there are too many."""

    def __init__(self, index: ClassIndex, most: int = MOST) -> None:
        self._index = index
        self._most = most
        self._known: dict[bytes, Verdict] = {}
        self._version = -1

    def __len__(self) -> int:
        """Return how many are kept."""
        return len(self._known)

    def on(
        self,
        annotations: Mapping[str, str],
        spec: Json,
        demanded: Iterable[str],
        *,
        is_placeable: bool,
    ) -> Verdict:
        """Return the verdict on a pod, as `judge` finds it."""
        if self._version != self._index.version:
            self._known.clear()
            self._version = self._index.version
        asked = (annotations.get(HELD_FOR_ANNOTATION), spec, tuple(demanded), is_placeable)
        # A specification may have a megabyte.
        key = hashlib.sha256(msgspec.json.encode(asked)).digest()
        verdict = self._known.get(key)
        if verdict is None:
            if len(self._known) >= self._most:
                self._known.clear()
            verdict = self._known[key] = judge(
                annotations, spec, self._index, asked[2], is_placeable=is_placeable
            )
        return verdict
