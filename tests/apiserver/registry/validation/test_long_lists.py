"""Lists as long as a request's body are validated in linear time: by counts, not by time."""

from __future__ import annotations

from typing import Any

from moorage.apiserver.registry.validation.metadata import metadata_errors
from moorage.apiserver.registry.validation.scheduling import spread_errors
from tests.apiserver.registry.rules import KINDS

LENGTH = 2000


class Counted(str):
    """A text that counts how often it is compared."""

    comparisons = 0

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        Counted.comparisons += 1
        return str.__eq__(self, str(other))

    def __hash__(self) -> int:
        return str.__hash__(self)


class Shown(list[Any]):
    """A list that counts how often it is formatted."""

    formats = 0

    def __getitem__(self, place: Any) -> Any:
        Shown.formats += 1
        return super().__getitem__(place)


def _constraint(key: str) -> dict[str, Any]:
    return {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule"}


def test_spread_constraints_are_compared_once() -> None:
    Counted.comparisons = 0
    constraints = [_constraint(Counted(f"k{number}")) for number in range(LENGTH)]
    assert not spread_errors(constraints, "spec.topologySpreadConstraints")
    assert Counted.comparisons < 10 * LENGTH


def test_each_spread_constraint_that_stands_again_later_is_reported() -> None:
    constraints = [_constraint(key) for key in ("a", "b", "a", "a")]
    assert [error.field for error in spread_errors(constraints, "c")] == [
        "c[0].{topologyKey, whenUnsatisfiable}", "c[2].{topologyKey, whenUnsatisfiable}",
    ]  # fmt: skip


def test_owners_are_formatted_once_for_all_errors() -> None:
    Shown.formats = 0
    owners = Shown(
        {"apiVersion": "v1", "kind": "Pod", "name": f"n{n}", "uid": f"u{n}", "controller": True}
        for n in range(LENGTH)
    )
    metadata = {"name": "a", "namespace": "default", "ownerReferences": owners}
    errors = metadata_errors(KINDS["ConfigMap"], {"metadata": metadata})
    assert len(errors) == LENGTH - 1
    assert str(errors[-1]).startswith("metadata.ownerReferences: Invalid value: [{")
    assert str(errors[-1]).endswith(
        ": Only one reference can have Controller set to true. Found "
        '"true" in references for Pod/n1998 and Pod/n1999'
    )
    assert Shown.formats <= 1
