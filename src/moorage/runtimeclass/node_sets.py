"""Sets of nodes as integers, one bit a node, and what the nodes are known for.

A thousand nodes are 125 bytes: an intersection takes 50 ns, so that a pod is compared with all
nodes of all classes in microseconds. Nodes keep their bit until they are removed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate, chain
from operator import or_
from sys import intern
from typing import Any, TypeVar

import msgspec

from moorage.api.meta import Object, ObjectMeta
from moorage.api.nodes import NodeRuntimeHandler
from moorage.api.quantity import parse
from moorage.api.runtime_group import GROUP
from moorage.runtimeclass.demands import SharedValues

K = TypeVar("K")

NodeSet = int
"""Bit N is the node with that number."""

_NO_VALUES: Mapping[str, NodeSet] = {}


class NodeFactsStatus(Object, frozen=True):
    allocatable: dict[str, str] = {}
    runtime_handlers: tuple[NodeRuntimeHandler, ...] = ()


class NodeFacts(Object, frozen=True):
    """A node as far as classes are fitted to pods."""

    metadata: ObjectMeta = ObjectMeta()
    status: NodeFactsStatus = NodeFactsStatus()


class _Amounts:
    """The nodes that have at least some amount of one resource."""

    def __init__(self) -> None:
        self._by_amount: dict[int, NodeSet] = {}
        self._sorted: list[int] = []
        self._at_least: list[NodeSet] | None = None

    def add(self, amount: int, bit: NodeSet) -> None:
        self._by_amount[amount] = self._by_amount.get(amount, 0) | bit
        self._at_least = None

    def remove(self, amount: int, bit: NodeSet) -> bool:
        """Remove a node with its amount. Return whether none is left."""
        if left := self._by_amount[amount] & ~bit:
            self._by_amount[amount] = left
        else:
            del self._by_amount[amount]
        self._at_least = None
        return not self._by_amount

    def at_least(self, amount: int) -> NodeSet:
        if self._at_least is None:
            self._sorted = sorted(self._by_amount)
            largest_first = (self._by_amount[one] for one in reversed(self._sorted))
            self._at_least = list(accumulate(largest_first, or_))[::-1]
        index = bisect_left(self._sorted, amount)
        return self._at_least[index] if index < len(self._at_least) else 0


Labels = frozenset[tuple[str, str]]


class _Known(msgspec.Struct, frozen=True):
    """What is recorded of a node; what many nodes have in common is kept once.

    Labels are apart by who has the same: those of handlers, those with the node name, others.
    """

    labels: Labels
    handler_labels: Labels
    unique_labels: tuple[tuple[str, str], ...]
    allocatable: frozenset[tuple[str, int]]
    handlers: frozenset[str]

    @classmethod
    def of(cls, node: NodeFacts) -> _Known:
        labels = node.metadata.labels.items()
        name = node.metadata.name
        ours = frozenset(label for label in labels if GROUP in label[0])
        unique = frozenset(label for label in labels if label[1] == name)
        return cls(
            frozenset(labels) - ours - unique,
            ours - unique,
            # Not shared, so small: a tuple, and the strings that there are already.
            tuple((intern(key), name) for key, _ in sorted(unique)),
            frozenset((key, parse(text).nano) for key, text in node.status.allocatable.items()),
            frozenset(handler.name for handler in node.status.runtime_handlers),
        )

    @property
    def all_labels(self) -> Iterator[tuple[str, str]]:
        return chain(self.labels, self.handler_labels, self.unique_labels)


class Nodes:
    """The nodes by label, by handler that they report, and by allocatable amount.

    `version` counts the changes. Memory grows with the nodes that exist, not with those that came
    and went.
    """

    def __init__(self) -> None:
        self.version = 0
        self.existing: NodeSet = 0
        self._bits: dict[str, NodeSet] = {}
        self._users: dict[str, int] = defaultdict(int)
        self._free: list[NodeSet] = []
        self._known: dict[str, _Known] = {}
        self._shared: SharedValues[frozenset[Any]] = SharedValues()
        self._labelled: dict[str, dict[str, NodeSet]] = {}
        self._reporting: dict[str, NodeSet] = {}
        self._reports_none: NodeSet = 0
        self._unsized: NodeSet = 0
        self._amounts: dict[str, _Amounts] = {}

    def __len__(self) -> int:
        return len(self._known)

    def hold(self, name: str) -> NodeSet:
        """Return the bit of a node, which need not exist; it is kept until `release`."""
        self._users[name] += 1
        bit = self._bits.get(name)
        if bit is None:
            bit = self._free.pop() if self._free else 1 << len(self._bits)
            self._bits[name] = bit
        return bit

    def release(self, name: str) -> None:
        """Give back the bit of a node; the last one to do so frees it."""
        self._users[name] -= 1
        if not self._users[name]:
            del self._users[name]
            self._free.append(self._bits.pop(name))

    def bit_of(self, name: str) -> NodeSet:
        """Return the bit of a node that is held."""
        return self._bits[name]

    def put(self, node: NodeFacts) -> bool:
        """Record a node. Return whether something of it has changed."""
        name = node.metadata.name
        known = _Known.of(node)
        before = self._known.get(name)
        if before == known:
            return False
        if before is not None:
            self._forget(name, before)
        bit = self.hold(name)
        take = self._shared.take
        self._known[name] = known = _Known(
            take(known.labels), take(known.handler_labels), known.unique_labels,
            take(known.allocatable), take(known.handlers),
        )  # fmt: skip
        self.existing |= bit
        for key, value in known.all_labels:
            by_value = self._labelled.setdefault(key, {})
            among = by_value.get(value)
            # A set of one is the node's own bit, the same integer: hundreds of bytes of it.
            by_value[value] = bit if among is None else among | bit
        for handler in known.handlers:
            self._reporting[handler] = self._reporting.get(handler, 0) | bit
        if not known.handlers:
            self._reports_none |= bit
        if not known.allocatable:
            self._unsized |= bit
        for resource, amount in known.allocatable:
            self._amounts.setdefault(resource, _Amounts()).add(amount, bit)
        self.version += 1
        return True

    def remove(self, name: str) -> bool:
        """Forget a node. Return whether it was known."""
        known = self._known.pop(name, None)
        if known is None:
            return False
        self._forget(name, known)
        self.version += 1
        return True

    def _forget(self, name: str, known: _Known) -> None:
        bit = self._bits[name]
        self.existing &= ~bit
        self._reports_none &= ~bit
        self._unsized &= ~bit
        for shared in (known.labels, known.handler_labels, known.allocatable, known.handlers):
            self._shared.give_back(shared)
        for key, value in known.all_labels:
            without(self._labelled[key], value, bit)
            if not self._labelled[key]:
                del self._labelled[key]
        for handler in known.handlers:
            without(self._reporting, handler, bit)
        for resource, amount in known.allocatable:
            if self._amounts[resource].remove(amount, bit):
                del self._amounts[resource]
        self.release(name)

    def named(self, name: str) -> NodeSet:
        """Return the set of one node, empty if it does not exist."""
        return self._bits.get(name, 0) & self.existing

    def labelled(self, labels: Iterable[tuple[str, str]]) -> NodeSet:
        """Return the nodes that have all these labels."""
        nodes = self.existing
        for key, value in labels:
            nodes &= self._labelled.get(key, _NO_VALUES).get(value, 0)
        return nodes

    def label_values(self, key: str) -> Mapping[str, NodeSet]:
        """Return the nodes that have a label, by its value."""
        return self._labelled.get(key, _NO_VALUES)

    def with_handler(self, handler: str) -> NodeSet:
        """Return the nodes that report a handler, or report none at all, as the scheduler does."""
        return self._reporting.get(handler, 0) | self._reports_none

    def with_room(self, resource: str, amount: int) -> NodeSet:
        """Return the nodes whose allocatable amount, in billionths, is at least this.

        A node that reports none at all counts as having room.
        """
        amounts = self._amounts.get(resource)
        return self._unsized | (0 if amounts is None else amounts.at_least(amount))


def without(sets: dict[K, NodeSet], key: K, bit: NodeSet) -> None:
    """Take a node out of the set of a key; an empty set is removed."""
    if left := sets[key] & ~bit:
        sets[key] = left
    else:
        del sets[key]
