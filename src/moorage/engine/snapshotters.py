"""Snapshotters by handler, following changes of the handlers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from moorage.handlers.catalogue import Catalogue


class HandlerSnapshotters(Mapping[str, str]):
    """Handler → snapshotter, empty for the store's own; "" is the default handler."""

    def __init__(self, catalogue: Callable[[], Catalogue]) -> None:
        self._catalogue = catalogue

    def __getitem__(self, name: str) -> str:
        handler = self._catalogue().find(name)
        if handler is None:
            raise KeyError(name)
        return handler.definition.snapshotter or ""

    def __iter__(self) -> Iterator[str]:
        return iter(self._catalogue().handlers)

    def __len__(self) -> int:
        return len(self._catalogue().handlers)
