"""Counting functions: the calls that a counted expression makes to be charged for.

Expressions as users write them cannot call these: no identifier has their names. Each returns
true, or raises above the limit. Source: cel-go `interpreter/runtimecost.go`, `ext/sets.go`,
`ext/lists.go`; apiserver `cel/library/cost.go` of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

from cel_expr_python import cel

from moorage.apiserver.cel.library.call_costs import matching, scaled
from moorage.apiserver.cel.library.meter import charge, make_room

COST, SIZES, TEXTS = "@cost", "@cost_sizes", "@cost_texts"
"""Charge a number; by a formula of two sizes; by a formula of the sizes of two texts or bytes."""
GROWN, GROWN_ITEMS = "@grown", "@grown_items"
"""Refuse a replacement, join or sum of texts, or a sum of lists by their sizes, which could not be
read within the limit: this one, or with all that were made before."""

_CHAR = 0.1
_CALL, _LIST = 1, 10
_ITEM_CHARACTERS = 20
"""How many characters take the room of an item of a list."""
_Type = cel.Type


class Formula(IntEnum):
    """How the cost of a call follows from two sizes; each value is a place in `_FORMULAS`."""

    READ = 0
    READ_TWICE = 1
    COMPARE = 2
    CONCATENATE = 3
    MATCH = 4
    CONTAIN = 5
    SEARCH_ITEMS = 6
    SETS = 7
    SETS_TWICE = 8
    ALLOCATE = 9
    FLATTEN = 10
    COMPARE_ITEMS = 11
    COMPARE_TEXTS = 12


_FORMULAS: tuple[Callable[[int, int], int], ...] = (
    lambda size, _: scaled(size, _CHAR),
    lambda size, _: scaled(size, 2 * _CHAR),
    lambda left, right: scaled(min(left, right), _CHAR),
    lambda left, right: scaled(left + right, _CHAR),
    matching,
    lambda text, part: scaled(text, _CHAR) * scaled(part, _CHAR),
    lambda size, _: size,
    lambda left, right: _CALL + left * right,
    lambda left, right: _CALL + 2 * left * right,
    lambda size, _: _CALL + _LIST + size,
    lambda size, depth: _CALL + _LIST + size * depth,
    lambda size, _: _CALL + _LIST + 2 * size * size,
    lambda size, _: _CALL + _LIST + int((2 + _CHAR) * size * size),
)


def call_cost(formula: Formula, left: int, right: int = 0) -> int:
    """Return the cost of a call by the sizes that its formula takes."""
    return _FORMULAS[formula](left, right)


def declarations() -> list[cel.FunctionDecl]:
    """Return the declarations of the counting functions."""
    number = _Type.INT
    texts = [
        cel.Overload(f"{TEXTS}_{kind}", _Type.BOOL, [number, kind, kind], False, _charge_texts)
        for kind in (_Type.STRING, _Type.BYTES)
    ]
    numbers = cel.Overload(f"{COST}_int", _Type.BOOL, [number], False, _charge)
    sizes = cel.Overload(f"{SIZES}_int", _Type.BOOL, [number] * 3, False, _charge_sizes)
    three, joined = [_Type.STRING] * 3, [_Type.List(_Type.STRING), _Type.STRING]
    grown = [
        cel.Overload(f"{GROWN}_text", _Type.BOOL, three, False, _refuse_replacement),
        cel.Overload(f"{GROWN}_some", _Type.BOOL, [*three, number], False, _refuse_some),
        cel.Overload(f"{GROWN}_list", _Type.BOOL, joined, False, _refuse_join),
        *(
            cel.Overload(f"{GROWN}_sum_{kind}", _Type.BOOL, [kind, kind], False, _refuse_sum)
            for kind in (_Type.STRING, _Type.BYTES)
        ),
    ]
    items = cel.Overload(f"{GROWN_ITEMS}_int", _Type.BOOL, [number] * 2, False, _refuse_items)
    return [
        cel.FunctionDecl(GROWN, grown),
        cel.FunctionDecl(GROWN_ITEMS, [items]),
        cel.FunctionDecl(COST, [numbers]),
        cel.FunctionDecl(SIZES, [sizes]),
        cel.FunctionDecl(TEXTS, texts),
    ]


def _charge(cost: int) -> bool:
    charge(cost)
    return True


def _charge_sizes(formula: int, left: int, right: int) -> bool:
    charge(_FORMULAS[formula](max(left, 0), right))
    return True


def _refuse_replacement(text: str, old: str, new: str) -> bool:
    return _refuse_some(text, old, new, -1)


def _refuse_some(text: str, old: str, new: str, most: int) -> bool:
    count = text.count(old)
    count = count if most < 0 else min(count, most)
    return _refuse(len(text) + count * (len(new) - len(old)))


def _refuse_join(texts: list[str], separator: str) -> bool:
    return _refuse(sum(map(len, texts)) + len(separator) * max(len(texts) - 1, 0))


def _refuse_sum(left: str | bytes, right: str | bytes) -> bool:
    return _refuse(len(left) + len(right))


def _refuse_items(left: int, right: int) -> bool:
    return _refuse((left + right) * _ITEM_CHARACTERS)


def _refuse(characters: int) -> bool:
    make_room(characters)
    return True


def _charge_texts(formula: int, left: str | bytes, right: str | bytes) -> bool:
    charge(_FORMULAS[formula](len(left), len(right)))
    return True
