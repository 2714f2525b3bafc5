"""Every field of rich objects changed in every simple way, against recorded answers.

For each path of an object, each change is made alone: dropped, emptied, of another sign, too long,
repeated. What validation says of a creation and of an update, which warnings go out, how a table
shows the object: one digest a path. Answers recorded from Kubernetes itself, word for word, are in
`validation/kubernetes_1_36.jsonl`; this table says that an answer has changed, and where.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from moorage.api.errors import StatusError
from moorage.apiserver.registry.kind import Kind, Obj
from moorage.apiserver.registry.validation.metadata import metadata_errors, metadata_update_errors
from tests.apiserver.registry.rich_objects import RICH
from tests.apiserver.registry.rules import BASES, KINDS, decoded, json_copy
from tests.recording import assert_recorded, digest

NOW = 1_767_225_600.0
_DROPPED = object()
Path = tuple[str | int, ...]


def paths(value: Any, at: Path = ()) -> Iterator[Path]:
    """Every place in an object below its root."""
    if at:
        yield at
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for key, child in items:
        yield from paths(child, (*at, key))


def variations(value: Any) -> list[Any]:
    """Other values for a place that has this one."""
    if isinstance(value, bool):
        return [_DROPPED, not value, "x"]
    if isinstance(value, int):
        return [_DROPPED, 0, 1, -1, value + 1, 100, 70_000, 2**31, 2**63, "x", "5%", "http"]
    if isinstance(value, str):
        return [_DROPPED, "", "A B", "a" * 300, f"{value}x", "../x", "/abs", "a/b", "-", "*", "0",
                "-1", "10.0.0.300", "true"]  # fmt: skip
    if isinstance(value, list):
        twice = [*value, json_copy(value[0])] if value else [{}]
        return [_DROPPED, [], twice, [*value, "x"], [*value, {}]]
    return [_DROPPED, {}, {**value, "unknown": "x"}, {**value, "A B": "x", "": "y"}]


def changed(obj: Obj, path: Path, value: Any) -> Obj:
    result: Obj = json_copy(obj)
    *above, last = path
    place: Any = result
    for key in above:
        place = place[key]
    if value is _DROPPED:
        del place[last]
    else:
        place[last] = value
    return result


def answers(kind: Kind, before: Obj, obj: Obj) -> list[Any]:
    """What comes of the object: as a creation, as an update of a decoded one, in a table."""
    results: list[Any] = []
    try:
        new = decoded(kind, obj)
        created, after, shown = json_copy(new), json_copy(new), json_copy(new)
        kind.strategy.prepare_create(created)
        errors = [*metadata_errors(kind, created), *kind.strategy.validate(created)]
        results.append([str(error) for error in errors])
        results.append(kind.strategy.warn(created, None))
        kind.strategy.prepare_update(after, before)
        errors = [*metadata_update_errors(after, before),
                  *kind.strategy.validate_update(after, before)]  # fmt: skip
        results.append([str(error) for error in errors])
        results.append([kind.strategy.warn(after, before), after == before])
        for name, part in kind.strategy.parts.items():
            after = json_copy(new)
            part.prepare(after, before)
            results.append([name, [str(error) for error in part.validate(after, before)]])
        if kind.printer is not None:
            shown["metadata"].setdefault("creationTimestamp", "2025-12-31T00:00:00Z")
            results.append(kind.printer.cells(shown, NOW))
    except StatusError as refusal:
        results.append(refusal.message)
    return results


# A Pod has most of the fields: seconds.
BY_COST = [
    pytest.param(name, marks=pytest.mark.slow if name.startswith("Pod ") else ())
    for name in sorted(RICH)
]


@pytest.mark.parametrize("name", BY_COST)
def test_every_field_changed_in_every_way(name: str) -> None:
    kind = KINDS[name.partition(" ")[0]]
    table: dict[str, str] = {}
    for title, base in (("least", BASES[kind.name]), ("rich", RICH[name])):
        before = decoded(kind, json_copy(base))
        table[title] = digest([answers(kind, before, json_copy(base)), before])
        for path in paths(base):
            value: Any = base
            for key in path:
                value = value[key]
            result = [
                answers(kind, before, changed(base, path, other)) for other in variations(value)
            ]
            table[f"{title} {'.'.join(map(str, path))}"] = digest(result)
    assert_recorded(f"apiserver/registry/changes-{name.replace(' ', '-')}", table)


@pytest.mark.parametrize("name", sorted(RICH))
def test_a_rich_object_is_legal(name: str) -> None:
    kind = KINDS[name.partition(" ")[0]]
    obj = decoded(kind, json_copy(RICH[name]))
    kind.strategy.prepare_create(obj)
    errors = [*metadata_errors(kind, obj), *kind.strategy.validate(obj)]
    assert errors == []
