"""Amounts: arithmetic on lists of resources. Source: kube-apiserver `quota/v1/resources.go`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from moorage.api.quantity import Quantity, parse

Amounts = dict[str, Quantity]
ONE = parse(1)
ZERO = Quantity(0)


def parsed(resources: Mapping[str, str]) -> Amounts:
    """Return a ResourceList as amounts."""
    return {name: parse(text) for name, text in resources.items()}


def added(left: Mapping[str, Quantity], right: Mapping[str, Quantity]) -> Amounts:
    """Return the sum for each resource."""
    total = dict(left)
    for name, amount in right.items():
        total[name] = total[name] + amount if name in total else amount
    return total


def increase(after: Mapping[str, Quantity], before: Mapping[str, Quantity]) -> Amounts:
    """Return the increase of each resource; a decrease counts as 0."""
    return {name: max(ZERO, amount - before.get(name, ZERO)) for name, amount in after.items()}


def masked(amounts: Mapping[str, Quantity], names: Iterable[str]) -> Amounts:
    """Return the amounts of these resources alone."""
    kept = set(names)
    return {name: amount for name, amount in amounts.items() if name in kept}


def exceeded(amounts: Mapping[str, Quantity], limits: Mapping[str, Quantity]) -> list[str]:
    """Return the resources of which there is more than the limit."""
    return sorted(
        name for name, limit in limits.items() if name in amounts and limit < amounts[name]
    )


def shown(amounts: Mapping[str, Quantity]) -> str:
    """Return amounts as refusals show them: `cpu=1,memory=2Gi`."""
    return ",".join(f"{name}={amounts[name]}" for name in sorted(amounts))
