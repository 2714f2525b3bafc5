"""Counted expressions: the tree of an expression, rewritten so that it counts what it costs.

What is evaluated in any case is counted before: `CountedTree.base_cost`. Where an expression may
be left out or repeated, or where the cost depends on a value, the tree calls a counting function
first: `e` becomes `@cost(3) ? e : true`, and a loop counts each of its rounds. Costs are those of
kube-apiserver, which observes each step of the evaluation. Source: cel-go
`interpreter/runtimecost.go`, `interpreter/planner.go`; apiserver `cel/library/cost.go` of
Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from moorage.apiserver.cel.changing_tree import ChangingTree
from moorage.apiserver.cel.checked import CheckedExpression, Expr, kind_of
from moorage.apiserver.cel.chunks import ACCUMULATORS, gather_in_chunks, makes_list
from moorage.apiserver.cel.construction import JSON_PATCH, TYPE_KEY
from moorage.apiserver.cel.library.counting import (
    GROWN,
    GROWN_ITEMS,
    SIZES,
    TEXTS,
    Formula,
    call_cost,
)

_LIST, _MAP, _STRUCT = 10, 30, 40
_RENAMED = "kubernetes_"
_OPTIONAL_OLD = "hasOldSelf"
_CONVERSIONS = frozenset(
    ("bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "uint")
)
_ATTRIBUTES = frozenset(("_[_]", "_?._", "_[?_]"))
_OPTIONAL = ("or", "orValue")
_SHORT = 10
"""Comparing with a text of so many characters costs 1."""

_SCALARS = frozenset((1, 2, 3, 4))
_STRING, _BYTES = 5, 6


class _Measure(NamedTuple):
    """What a call of the CEL library costs: a formula of the sizes of one or two operands.

    `right` is None where the formula takes one size. `of_result`: it takes the size of the result.
    `of_value`: it takes the first operand's value, which is the size of what the call makes.
    """

    formula: Formula
    left: int = 0
    right: int | None = None
    of_result: bool = False
    of_value: bool = False


_MEASURES: dict[str, _Measure] = {
    "startsWith": _Measure(Formula.READ),
    "endsWith": _Measure(Formula.READ),
    "bytes_to_string": _Measure(Formula.READ),
    "string_to_bytes": _Measure(Formula.READ),
    "format": _Measure(Formula.READ),
    "strings.quote": _Measure(Formula.READ),
    "lowerAscii": _Measure(Formula.READ),
    "upperAscii": _Measure(Formula.READ),
    "substring": _Measure(Formula.READ),
    "trim": _Measure(Formula.READ),
    "replace": _Measure(Formula.READ_TWICE),
    "split": _Measure(Formula.READ_TWICE),
    "join": _Measure(Formula.READ_TWICE, of_result=True),
    "matches_string": _Measure(Formula.MATCH, 0, 1),
    "contains": _Measure(Formula.CONTAIN, 0, 1),
    "in_list": _Measure(Formula.SEARCH_ITEMS, 1),
    "sets.contains": _Measure(Formula.SETS, 0, 1),
    "sets.intersects": _Measure(Formula.SETS, 0, 1),
    "sets.equivalent": _Measure(Formula.SETS_TWICE, 0, 1),
    "slice": _Measure(Formula.ALLOCATE, of_result=True),
    "lists.range": _Measure(Formula.ALLOCATE, of_value=True),
    "list_reverse": _Measure(Formula.ALLOCATE, of_result=True),
    "flatten": _Measure(Formula.FLATTEN, 0),
    "distinct": _Measure(Formula.COMPARE_ITEMS, 0),
    "sort": _Measure(Formula.COMPARE_ITEMS, 0),
    "@sortByAssociatedKeys": _Measure(Formula.COMPARE_ITEMS, 1),
}
"""Calls that do not cost 1, by the function's name or the only overload that is meant."""

_COMPARED = _Measure(Formula.COMPARE, 0, 1)
_CONCATENATED = _Measure(Formula.CONCATENATE, 0, 1)
_TEXT_OPERATORS = {
    "_==_": _COMPARED, "_!=_": _COMPARED, "_<_": _COMPARED, "_<=_": _COMPARED, "_>_": _COMPARED,
    "_>=_": _COMPARED, "_+_": _CONCATENATED,
}  # fmt: skip
"""Operators whose cost depends on the operands where these are texts or bytes."""

_EQUALITIES = ("_==_", "_!=_")
_GROWING = ("replace", "join")
"""Calls whose text may be longer than all that they are given."""


class CountedTree(NamedTuple):
    """A tree that counts. `base_cost` is what is counted before it is evaluated."""

    serialized: bytes
    base_cost: int


def counted(checked: CheckedExpression, charged: frozenset[str], *, is_typed: bool) -> CountedTree:
    """Return the counted tree of an expression. `checked` is changed.

    `charged`: the functions that charge for their calls. `is_typed`: upstream knows the types of
    what is dynamic here, as rules are checked against a schema.
    """
    tree = _Counter(checked, charged, is_typed=is_typed)
    base_cost = tree.count(checked.root)
    return CountedTree(checked.serialized(), base_cost)


class _Counter:
    """Rewrites one tree. `count` returns what an expression costs whenever it is evaluated."""

    def __init__(
        self, checked: CheckedExpression, charged: frozenset[str], *, is_typed: bool
    ) -> None:
        self._checked = checked
        self._tree = ChangingTree(checked)
        self._charged = charged
        self._is_typed = is_typed

    def count(self, expr: Expr) -> int:
        match kind_of(expr):
            case "ident_expr":
                return int(not self._is_type_name(expr))
            case "select_expr":
                return self._select(expr)
            case "call_expr":
                return self._call(expr)
            case "list_expr":
                elements = expr.list_expr.elements
                return 0 if _is_constant(expr) else _LIST + sum(map(self.count, elements))
            case "struct_expr":
                return self._struct(expr)
            case "comprehension_expr":
                return self._comprehension(expr)
        return 0

    # Names, fields and elements.

    def _is_type_name(self, expr: Expr) -> bool:
        type_ = self._checked.type_of(expr)
        return type_ is not None and type_.WhichOneof("kind") == "type"

    def _select(self, expr: Expr) -> int:
        if self._checked.is_name(expr):
            return 1
        operand = expr.select_expr.operand
        base = 0 if self._is_attribute(operand) else 1
        cost = base + self.count(operand)
        return cost if expr.select_expr.test_only else cost + 1

    def _element(self, expr: Expr) -> int:
        operand, index = _operands(expr)
        if kind_of(operand) == "call_expr" and _RENAMED in operand.call_expr.function:
            # The optional selection is part of how the call is made here.
            return self.count(operand)
        base = 0 if self._is_attribute(operand) else 1
        base -= int(self._has_base(index))
        return base + 1 + self.count(operand) + self.count(index)

    def _is_attribute(self, expr: Expr) -> bool:
        match kind_of(expr):
            case "ident_expr" | "select_expr":
                return True
            case "call_expr":
                return expr.call_expr.function in (*_ATTRIBUTES, "_?_:_")
        return False

    def _has_base(self, expr: Expr) -> bool:
        """Return whether an attribute costs 1 less where it is a branch or an index."""
        if kind_of(expr) == "ident_expr":
            return not self._is_type_name(expr)
        if kind_of(expr) == "select_expr":
            return not expr.select_expr.test_only
        return kind_of(expr) == "call_expr" and expr.call_expr.function in _ATTRIBUTES

    # Calls.

    def _call(self, expr: Expr) -> int:
        name = expr.call_expr.function
        if name in _ATTRIBUTES:
            return self._element(expr)
        if _is_constant(expr):
            return 0
        if name == "_?_:_":
            return self._conditional(expr)
        operands = _operands(expr)
        if name in _OPTIONAL:
            # Upstream does not observe these as calls.
            self._count_block(operands[1])
            return self.count(operands[0])
        if name in ("_&&_", "_||_"):
            cost = self.count(operands[0])
            self._count_block(operands[1])
            return cost
        if name.startswith(_RENAMED) and kind_of(operands[-1]) == "list_expr":
            # The list of arguments is part of how the call is made here.
            operands = [operands[0], *operands[-1].list_expr.elements]
        cost = sum(map(self.count, operands))
        return cost if name in self._charged else cost + self._own_cost(expr, operands)

    def _conditional(self, expr: Expr) -> int:
        condition, *branches = _operands(expr)
        cost = self.count(condition)
        for branch in branches:
            self._count_block(branch, less=int(self._has_base(branch)))
        return cost

    def _own_cost(self, expr: Expr, operands: Sequence[Expr]) -> int:
        """Return the cost of the call itself; costs by values are counted by the tree."""
        name, overloads = expr.call_expr.function, self._checked.overloads(expr)
        if name in _TEXT_OPERATORS:
            return self._operator(expr, operands, overloads)
        if name == "@in":
            return self._containment(expr, operands, overloads)
        measure = _MEASURES.get(name)
        if measure is None and len(overloads) == 1:
            measure = _MEASURES.get(overloads[0])
        if measure is None:
            return 1
        if name in _GROWING:
            return self._grown(expr, operands, measure)
        return self._measured(expr, operands, measure)

    def _containment(self, expr: Expr, operands: Sequence[Expr], overloads: Sequence[str]) -> int:
        items = operands[1]
        if kind_of(items) == "list_expr" and _is_constant(items):
            return 0
        if tuple(overloads) == ("in_list",):
            return self._measured(expr, operands, _MEASURES["in_list"])
        if not self._is_typed or "in_list" not in overloads:
            return 1
        # Only lists can be added to lists: the size of a map is not what its search costs.
        value, binding = self._tree.shared(items)
        size = self._tree.call("size", self._tree.call("_+_", value, self._tree.list()))
        sizes = self._tree.call(
            SIZES, self._tree.number(Formula.SEARCH_ITEMS), size, self._tree.number(0)
        )
        self._tree.guard(expr, self._tree.either(sizes, self._tree.cost(1)), binding)
        return 0

    def _operator(self, expr: Expr, operands: Sequence[Expr], overloads: Sequence[str]) -> int:
        """Return the cost of an operator that reads its operands if they are texts or bytes."""
        name = expr.call_expr.function
        is_equality = name in _EQUALITIES
        kinds = [self._kind(operand) for operand in operands]
        if "scalar" in kinds or (not is_equality and "map" in kinds):
            return 1
        if not is_equality and "list" in kinds:
            self._refuse_sum(expr, operands)
            return 1
        is_known = "text" in kinds
        if not is_known and not is_equality and not (self._is_typed and len(overloads) > 1):
            self._refuse_sum(expr, operands)
            return 1
        for operand in operands:
            size = _constant_size(operand)
            if is_equality and size is not None and 0 < size <= _SHORT:
                return 1
        shared = [self._tree.shared(operand) for operand in operands]
        values = [value for value, _ in shared]
        formula = _TEXT_OPERATORS[name].formula
        charge = self._tree.call(TEXTS, self._tree.number(formula), *values)
        if is_equality and not is_known:
            sizes = [self._tree.call("size", value) for value in values]
            by_size = self._tree.call(SIZES, self._tree.number(formula), *sizes)
            charge = self._tree.either(charge, by_size)
        bindings = [binding for _, binding in shared]
        self._tree.guard(expr, self._tree.either(charge, self._tree.cost(1)), *bindings)
        return 0

    def _refuse_sum(self, expr: Expr, operands: Sequence[Expr]) -> None:
        """Refuse a sum of lists, or of values of any kind, that is too long before it is made."""
        is_sum = expr.call_expr.function == "_+_"
        if not is_sum or operands[0].ident_expr.name in ACCUMULATORS:
            return
        is_list = "list" in map(self._kind, operands)
        shared = [self._tree.shared(operand) for operand in operands]
        values = [value for value, _ in shared]
        sizes = [self._tree.call("size", value) for value in values]
        check = self._tree.either(self._tree.call(GROWN_ITEMS, *sizes), self._tree.cost(0))
        if not is_list:
            check = self._tree.either(self._tree.call(GROWN, *values), check)
        self._tree.guard(expr, check, *(binding for _, binding in shared))

    def _grown(self, expr: Expr, operands: Sequence[Expr], measure: _Measure) -> int:
        """Refuse a text that would be too long before it is made; then as `_measured`."""
        shared = [self._tree.shared(operand) for operand in operands]
        values = [value for value, _ in shared]
        if expr.call_expr.function == "join" and len(values) == 1:
            values.append(self._tree.text(""))
        check = self._tree.either(self._tree.call(GROWN, *values), self._tree.cost(0))
        cost = self._measured(expr, operands, measure)
        self._tree.guard(expr, check, *(binding for _, binding in shared))
        return cost

    def _measured(self, expr: Expr, operands: Sequence[Expr], measure: _Measure) -> int:
        formula = measure.formula
        if measure.of_result or measure.of_value:
            value, binding = self._tree.shared(operands[0] if measure.of_value else expr)
            size = value if measure.of_value else self._tree.call("size", value)
            charge = self._tree.call(SIZES, self._tree.number(formula), size, self._tree.number(0))
            self._tree.guard(expr, charge, binding)
            return 0
        left = operands[measure.left]
        right = None if measure.right is None else operands[measure.right]
        if formula == Formula.COMPARE_ITEMS and self._has_texts(left):
            formula = Formula.COMPARE_TEXTS
        sizes = [_constant_size(left), 0 if right is None else _constant_size(right)]
        if formula == Formula.FLATTEN:
            right = operands[1] if len(operands) > 1 else None
            sizes[1] = 1 if right is None else int(right.const_expr.int64_value)
        if sizes[0] is not None and sizes[1] is not None:
            return call_cost(formula, sizes[0], sizes[1])
        made, bound = [], []
        for operand, size in zip((left, right), sizes, strict=True):
            if size is not None or operand is None:
                made.append(self._tree.number(size or 0))
            else:
                value, binding = self._tree.shared(operand)
                bound.append(binding)
                made.append(self._tree.call("size", value))
        self._tree.guard(expr, self._tree.call(SIZES, self._tree.number(formula), *made), *bound)
        return 0

    def _kind(self, expr: Expr) -> str:
        """Return the known form of a value: `text`, `list`, `map`, `scalar`, or none."""
        size = _constant_size(expr)
        if size is not None:
            return "text"
        if kind_of(expr) == "const_expr":
            return "scalar"
        type_ = self._checked.type_of(expr)
        match "" if type_ is None else type_.WhichOneof("kind"):
            case "primitive":
                return "text" if type_.primitive in (_STRING, _BYTES) else "scalar"
            case "wrapper":
                return "text" if type_.wrapper in (_STRING, _BYTES) else "scalar"
            case "list_type":
                return "list"
            case "map_type":
                return "map"
            case "message_type" | "well_known" | "null" | "type":
                return "scalar"
        return ""

    def _has_texts(self, expr: Expr) -> bool:
        type_ = self._checked.type_of(expr)
        if type_ is None or type_.WhichOneof("kind") != "list_type":
            return False
        return type_.list_type.elem_type.primitive in (_STRING, _BYTES)

    # Constructions and loops.

    def _struct(self, expr: Expr) -> int:
        struct = expr.struct_expr
        if struct.message_name:
            return _STRUCT + sum(self.count(entry.value) for entry in struct.entries)
        if struct.entries and struct.entries[0].map_key.const_expr.string_value == TYPE_KEY:
            return self._construction(expr)
        if _is_constant(expr):
            return 0
        parts = [part for entry in struct.entries for part in (entry.map_key, entry.value)]
        return _MAP + sum(map(self.count, parts))

    def _construction(self, expr: Expr) -> int:
        """Return the cost of an object or patch, without the calls by which it is made here."""
        name, *fields = expr.struct_expr.entries
        is_patch = _unwrapped(name.value).const_expr.string_value == JSON_PATCH
        cost = _STRUCT
        for entry in fields:
            value = _unwrapped(entry.value)
            if is_patch and kind_of(value) == "call_expr" and value.call_expr.function == "_+_":
                value = value.call_expr.args[1]
            cost += self.count(value)
        return cost

    def _comprehension(self, expr: Expr) -> int:
        loop = expr.comprehension_expr
        if _is_bind(loop):
            if not _is_optional_old(loop.accu_init):
                self._count_block(loop.accu_init)
            return self.count(loop.result)
        is_list = makes_list(loop)
        cost = self.count(loop.iter_range) + self.count(loop.accu_init)
        if loop.loop_condition.const_expr.bool_value:
            # A charge that fails ends the loop here. In the step the error would go on through all
            # further rounds.
            self._tree.guard(loop.loop_condition, self._tree.cost(self.count(loop.loop_step)))
        else:
            self._count_block(loop.loop_condition)
            self._count_block(loop.loop_step)
        cost += self.count(loop.result)
        if is_list:
            gather_in_chunks(self._tree, loop)
        return cost

    def _count_block(self, expr: Expr, *, less: int = 0) -> None:
        """Have an expression counted when it is evaluated. `less`: what does not count of it."""
        cost = self.count(expr) - less
        if cost > 0:
            self._tree.guard(expr, self._tree.cost(cost))


def _operands(expr: Expr) -> list[Expr]:
    call = expr.call_expr
    return [call.target, *call.args] if call.HasField("target") else list(call.args)


def _unwrapped(expr: Expr) -> Expr:
    """Return the argument of `dyn(…)`."""
    return expr.call_expr.args[0] if expr.call_expr.function == "dyn" else expr


def _constant_size(expr: Expr) -> int | None:
    """Return the size of a text, bytes or list that the expression has."""
    match kind_of(expr):
        case "const_expr":
            constant = expr.const_expr
            match constant.WhichOneof("kind"):
                case "string_value":
                    return len(constant.string_value)
                case "bytes_value":
                    return len(constant.bytes_value)
        case "list_expr" if _is_constant(expr):
            return len(expr.list_expr.elements)
    return None


def _is_constant(expr: Expr) -> bool:
    """Return whether upstream evaluates an expression once, when it is compiled."""
    match kind_of(expr):
        case "const_expr":
            return True
        case "list_expr":
            return all(map(_is_constant, expr.list_expr.elements))
        case "struct_expr" if not expr.struct_expr.message_name:
            entries = expr.struct_expr.entries
            return all(_is_constant(one.map_key) and _is_constant(one.value) for one in entries)
        case "call_expr" if expr.call_expr.function in _CONVERSIONS:
            return len(expr.call_expr.args) == 1 and _is_constant(expr.call_expr.args[0])
    return False


def _is_bind(loop: Expr) -> bool:
    is_empty = kind_of(loop.iter_range) == "list_expr" and not loop.iter_range.list_expr.elements
    return is_empty and loop.loop_condition.const_expr.WhichOneof("kind") == "bool_value"


def _is_optional_old(expr: Expr) -> bool:
    """Return whether this is the optional value that `oldSelf` is made here (`schema_rules.py`)."""
    if kind_of(expr) != "call_expr" or expr.call_expr.function != "_?_:_":
        return False
    return bool(expr.call_expr.args[0].ident_expr.name == _OPTIONAL_OLD)
