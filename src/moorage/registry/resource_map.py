"""Resource map: which kind is served under a group, version and plural name.

The API's own kinds are fixed; those of custom resource definitions come and go while the server
runs. Source: apimachinery `meta.RESTMapper`.
"""

from __future__ import annotations

from collections.abc import Sequence

from moorage.registry.kind import Kind, Served, by_resource

Place = tuple[str, str, str]
"""(group, version, plural)."""


class ResourceMap:
    """The served kinds. `changes` counts changes of the custom ones, for caches of documents."""

    def __init__(self, kinds: Sequence[Kind]) -> None:
        self._own = tuple(kinds)
        self._custom: dict[str, Kind] = {}
        self.changes = 0
        self._index()

    @property
    def kinds(self) -> tuple[Kind, ...]:
        return (*self._own, *self._custom.values())

    def find(self, group: str, version: str, plural: str) -> tuple[Kind, Served] | None:
        """Return the kind and version that are served there."""
        return self._places.get((group, version, plural))

    def is_own(self, group: str, plural: str) -> bool:
        """Return whether the API itself has a resource of that name, in any version."""
        return any(kind.plural == plural and kind.group == group for kind in self._own)

    def has_group(self, group: str) -> bool:
        return group in self._groups

    def custom(self, definition: str) -> Kind | None:
        """Return the kind of a definition that is served, by the definition's name."""
        return self._custom.get(definition)

    def custom_kinds(self) -> tuple[tuple[str, Kind], ...]:
        """Return the custom kinds that are served, each with its definition's name."""
        return tuple(self._custom.items())

    def put_custom(self, definition: str, kind: Kind) -> None:
        """Serve the kind of a definition, or replace it."""
        self._custom[definition] = kind
        self._changed()

    def remove_custom(self, definition: str) -> None:
        """Stop serving the kind of a definition."""
        if self._custom.pop(definition, None) is not None:
            self._changed()

    def _changed(self) -> None:
        self.changes += 1
        self._index()

    def _index(self) -> None:
        # The API's own kinds last: no definition may replace one.
        self._places: dict[Place, tuple[Kind, Served]] = {
            **by_resource(tuple(self._custom.values())),
            **by_resource(self._own),
        }
        self._groups = {group for group, _, _ in self._places}
