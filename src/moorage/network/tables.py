"""Tables of rules: one nftables table whose chains, sets and elements belong to fragments.

A fragment is what one Service port or one pod needs. Replacing one gives a script that touches only
what differs, so that a change costs the same in a table of ten and of ten thousand; a script of the
whole table starts it, and repairs it. Pure. Source: nft(8).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

T = TypeVar("T")

_USED: Final = re.compile(r"@([\w-]+)")
_CHAIN: Final = re.compile(r"chain ([\w-]+) \{")
_CHUNK: Final = 500
"""Elements in one command: libnftables' memory grows with the longest."""


@dataclass(frozen=True, slots=True)
class Collection:
    """A set or map. `type` is as nft(8) writes it, with flags and timeout."""

    kind: str
    type: str

    def declaration(self, name: str) -> str:
        return f"{self.kind} {name} {{ type {self.type}; }}"


@dataclass(frozen=True, slots=True)
class Fragment:
    """Chains and collections by name, and elements in collections of any fragment.

    Fragments may have the same chain or collection, with the same content: it is there once, until
    the last of them goes. `elements` has for each collection its keys with their values, `""` in a
    set.
    """

    chains: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    collections: Mapping[str, Collection] = field(default_factory=dict)
    elements: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        return not (self.chains or self.collections or self.elements)


EMPTY: Final = Fragment()


class _Shared(Generic[T]):
    """What fragments have by name, counted."""

    def __init__(self) -> None:
        self.contents: dict[str, T] = {}
        self._counts: Counter[str] = Counter()

    def replace(
        self, before: Mapping[str, T], after: Mapping[str, T]
    ) -> tuple[dict[str, T], dict[str, T], dict[str, T]]:
        """Exchange a fragment's. Return what is gone, what is new and what has another content."""
        gone: dict[str, T] = {}
        new: dict[str, T] = {}
        changed: dict[str, T] = {}
        for name in [name for name in before if name not in after]:
            self._counts[name] -= 1
            if not self._counts[name]:
                del self._counts[name]
                gone[name] = self.contents.pop(name)
        for name, content in after.items():
            if name not in before:
                self._counts[name] += 1
            if name not in self.contents:
                new[name] = content
            elif self.contents[name] != content:
                changed[name] = content
            self.contents[name] = content
        return gone, new, changed


class Table:
    """The wanted content of a table: its frame, and the fragments in it.

    Where two fragments have the same element, that of the first to claim it counts until it goes.
    """

    def __init__(self, family: str, name: str, frame: str) -> None:
        """`frame` is the body of the table's declaration: base chains and shared collections."""
        self.family = family
        self.name = name
        self._frame = frame
        self._fragments: dict[str, Fragment] = {}
        self._chains: _Shared[tuple[str, ...]] = _Shared()
        self._collections: _Shared[Collection] = _Shared()
        self._claims: dict[str, dict[str, dict[str, str]]] = {}

    @property
    def owners(self) -> frozenset[str]:
        """The keys of the fragments."""
        return frozenset(self._fragments)

    @property
    def base_chains(self) -> tuple[str, ...]:
        """The chains of the frame, of which no change touches the rules."""
        return tuple(_CHAIN.findall(self._frame))

    def fragment(self, key: str) -> Fragment:
        """Return the fragment of a key, an empty one if it has none."""
        return self._fragments.get(key, EMPTY)

    def replace(self, key: str, fragment: Fragment) -> str:
        """Put a fragment in the place of the key's last one; return the script that does it.

        An empty fragment removes it. The script is empty if nothing changes.
        """
        before = self._fragments.pop(key, EMPTY)
        if not fragment.is_empty:
            self._fragments[key] = fragment
        removed, added = self._claim(key, before, fragment)
        gone, new, changed = self._chains.replace(before.chains, fragment.chains)
        ended, begun, altered = self._collections.replace(before.collections, fragment.collections)
        lines = (
            # What is referred to comes first and goes last. A collection of another type is
            # replaced between the rules that used it and those that use the new one.
            *(f"flush chain {self._at(name)}" for name in (*changed, *gone)),
            *self._element_lines("delete", removed),
            *(f"delete chain {self._at(name)}" for name in gone),
            *(f"delete {before.collections[name].kind} {self._at(name)}" for name in altered),
            *(f"delete {one.kind} {self._at(name)}" for name, one in ended.items()),
            *self._declarations({**begun, **altered}),
            *(f"add chain {self._at(name)}" for name in new),
            *self._rule_lines({**new, **changed}),
            *self._element_lines("add", added),
        )
        return "".join(f"{line}\n" for line in lines)

    def trial(self, keys: Iterable[str], name: str) -> str:
        """Return a script that makes a table of these fragments alone, and removes it again.

        With the collections that they use. One transaction: no packet sees it.
        """
        part = Table(self.family, name, self._frame)
        for key in keys:
            fragment = self.fragment(key)
            used = {
                match for lines in fragment.chains.values() for match in _USED.findall(str(lines))
            }
            shared = {
                one: self._collections.contents[one]
                for one in used & self._collections.contents.keys()
            }
            part.replace(
                key,
                Fragment(fragment.chains, {**shared, **fragment.collections}, fragment.elements),
            )
        return f"{part.script()}delete table {self.family} {name}\n"

    def script(self) -> str:
        """Return the script that makes the whole table, in place of one that exists."""
        table = f"{self.family} {self.name}"
        elements = {
            name: {key: next(iter(values.values())) for key, values in claims.items()}
            for name, claims in self._claims.items()
        }
        lines = (
            # A table is deleted only where there is one.
            f"add table {table}",
            f"delete table {table}",
            f"table {table} {{\n{self._frame}\n}}",
            *self._declarations(self._collections.contents),
            *(f"add chain {self._at(name)}" for name in self._chains.contents),
            *self._rule_lines(self._chains.contents),
            *self._element_lines("add", elements),
        )
        return "".join(f"{line}\n" for line in lines)

    def _claim(
        self, owner: str, before: Fragment, after: Fragment
    ) -> tuple[dict[str, dict[str, str]], dict[str, dict[str, str]]]:
        """Change whose elements count. Return the elements to delete, and those to add after it."""
        removed: dict[str, dict[str, str]] = {}
        added: dict[str, dict[str, str]] = {}
        for name in {**before.elements, **after.elements}:
            old, new = before.elements.get(name, {}), after.elements.get(name, {})
            claims = self._claims.setdefault(name, {})
            for key in {**old, **new}:
                if old.get(key) == new.get(key):
                    continue
                owners = claims.setdefault(key, {})
                was = next(iter(owners.values()), None)
                if key in new:
                    # Keeps the owner's place.
                    owners[owner] = new[key]
                else:
                    del owners[owner]
                now = next(iter(owners.values()), None)
                if not owners:
                    del claims[key]
                if was != now and was is not None:
                    removed.setdefault(name, {})[key] = was
                if was != now and now is not None:
                    added.setdefault(name, {})[key] = now
            if not claims:
                del self._claims[name]
        return removed, added

    def _declarations(self, collections: Mapping[str, Collection]) -> Iterator[str]:
        for name, one in collections.items():
            yield f"add {one.declaration(self._at(name))}"

    def _rule_lines(self, chains: Mapping[str, Iterable[str]]) -> Iterator[str]:
        for name, rules in chains.items():
            for rule in rules:
                yield f"add rule {self._at(name)} {rule}"

    def _element_lines(self, verb: str, elements: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
        for name, values in elements.items():
            texts = [
                key if verb == "delete" or not value else f"{key} : {value}"
                for key, value in values.items()
            ]
            for start in range(0, len(texts), _CHUNK):
                chunk = ", ".join(texts[start : start + _CHUNK])
                yield f"{verb} element {self._at(name)} {{ {chunk} }}"

    def _at(self, name: str) -> str:
        return f"{self.family} {self.name} {name}"
