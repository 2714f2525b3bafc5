"""Resource map: which kind is served under a group, version and plural name.

The API's own kinds are fixed; those of custom resource definitions come and go while the server
runs. Source: apimachinery `meta.RESTMapper`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from moorage.apiserver.registry.kind import Kind, Served, by_resource

Place = tuple[str, str, str]
"""(group, version, plural)."""


class ResourceMap:
    """The served kinds. `changes` counts changes of the custom ones, for caches of documents."""

    def __init__(self, kinds: Sequence[Kind]) -> None:
        self._own = tuple(kinds)
        self._custom: dict[str, tuple[Kind, ...]] = {}
        self.changes = 0
        self._listeners: list[Callable[[], None]] = []
        self._index()

    def listen(self, listener: Callable[[], None]) -> None:
        """Call a function after each change of the custom kinds."""
        self._listeners.append(listener)

    def resources(self) -> Iterator[tuple[Kind, Served]]:
        """Yield every kind with each version that is served."""
        for kind in self._own:
            for served in kind.served:
                if served.is_served:
                    yield kind, served
        for _, kind in self.custom_kinds():
            yield kind, kind.storage

    def find(self, group: str, version: str, plural: str) -> tuple[Kind, Served] | None:
        """Return the kind and version that are served there."""
        return self._places.get((group, version, plural))

    def is_own(self, group: str, plural: str) -> bool:
        """Return whether the API itself has a resource of that name, in any version."""
        return any(kind.plural == plural and kind.group == group for kind in self._own)

    def has_version(self, group: str, version: str) -> bool:
        """Return whether any resource is served in a version of a group."""
        return (group, version) in self._versions

    def has_group(self, group: str) -> bool:
        return group in self._groups

    def custom(self, definition: str) -> tuple[Kind, ...]:
        """Return the kinds of a definition, none if it is not served."""
        return self._custom.get(definition, ())

    def custom_kinds(self) -> Iterator[tuple[str, Kind]]:
        """Yield the custom kinds, one for each served version, with their definition's name."""
        for definition, kinds in self._custom.items():
            for kind in kinds:
                if kind.storage.is_served:
                    yield definition, kind

    def put_custom(self, definition: str, kinds: tuple[Kind, ...]) -> None:
        """Serve the kinds of a definition, one for each version, or replace them."""
        self._custom[definition] = kinds
        self._changed()

    def remove_custom(self, definition: str) -> None:
        """Stop serving the kind of a definition."""
        if self._custom.pop(definition, None) is not None:
            self._changed()

    def _changed(self) -> None:
        self.changes += 1
        self._index()
        for listener in self._listeners:
            listener()

    def _index(self) -> None:
        # The API's own kinds last: no definition may replace one.
        self._places: dict[Place, tuple[Kind, Served]] = {
            **{_place(kind, kind.storage): (kind, kind.storage) for _, kind in self.custom_kinds()},
            **by_resource(self._own),
        }
        self._versions = {(group, version) for group, version, _ in self._places}
        self._groups = {group for group, _ in self._versions}


def _place(kind: Kind, served: Served) -> Place:
    return served.group, served.version, kind.plural
