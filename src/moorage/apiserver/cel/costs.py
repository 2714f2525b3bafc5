"""Cost estimates: the most that an expression can cost, from its tree and the bounds of its schema.

A unit is about one step of an evaluation. Sizes of values follow the path that leads to them:
`self.spec.names` has the bound that the schema gives it, or that the largest request does. Source:
cel-go `checker/cost.go`, apiserver `cel/library/cost.go` of Kubernetes 1.36.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from moorage.apiserver.cel.checked import CheckedExpression, Declared, Expr, kind_of

LARGEST = 2**64 - 1
"""The largest cost and size: estimates do not overflow."""

_CHAR = 0.1
"""Cost of a character of a text that is read once."""

_PATTERN_CHAR = 0.25
"""Cost of a character of a regular expression."""

_LIST, _MAP, _MESSAGE = 10, 30, 40
_CHECK = 350_000
_ADDRESS = 16
"""The size of an address, in bytes."""

_FORMAT_PATTERN = 128
_FORMAT = 64
"""The longest name of a format."""

_OPAQUE = "kubernetes."
_ACCUMULATORS = ("__result__", "@result")
_SCALARS = frozenset((1, 2, 3, 4))
"""`cel.expr.Type.PrimitiveType`: bool, int64, uint64, double."""

_STRING, _BYTES = 5, 6
_SPAN, _MOMENT = 3, 2
"""`cel.expr.Type.WellKnownType`: a duration, a timestamp."""

Path = tuple[str, ...]


class Size(NamedTuple):
    """Between how many elements, characters or bytes a value has."""

    least: int
    most: int

    def union(self, other: Size) -> Size:
        return Size(min(self.least, other.least), max(self.most, other.most))

    def plus(self, other: Size) -> Size:
        return Size(_sum(self.least, other.least), _sum(self.most, other.most))


_UNKNOWN = Size(0, LARGEST)


class Entries(NamedTuple):
    """The sizes of the keys and values of a map, or of the items of a list."""

    keys: Size
    values: Size
    is_list: bool


class _Variable(NamedTuple):
    path: Path
    size: Size | None
    entries: Entries | None


class _Call(NamedTuple):
    """A call with the estimates of its parts; `target` is None for a global function."""

    expr: Expr
    name: str
    target: Expr | None
    arguments: list[Expr]


class _Estimate(NamedTuple):
    cost: int
    size: Size | None = None


def estimated_cost(checked: CheckedExpression, root: Declared | None) -> int:
    """Return the most that an expression about `self` can cost, whose type is `root`."""
    return _Estimator(checked, root).cost(checked.root)


def _sum(*numbers: int) -> int:
    return min(sum(numbers), LARGEST)


def _product(left: int, right: int) -> int:
    return min(left * right, LARGEST)


def _scaled(number: int, factor: float) -> int:
    return min(math.ceil(number * factor), LARGEST)


class _Estimator:
    def __init__(self, checked: CheckedExpression, root: Declared | None) -> None:
        self._checked = checked
        self._root = root
        self._paths: dict[int, Path] = {}
        self._sizes: dict[int, Size] = {}
        self._entries: dict[int, Entries] = {}
        self._variables: dict[str, list[_Variable]] = {}

    def cost(self, expr: Expr) -> int:
        """Return the most that an expression costs, and note its path and size."""
        match kind_of(expr):
            case "ident_expr":
                variable = self._variable(expr.ident_expr.name)
                self._paths[expr.id] = variable.path if variable else (expr.ident_expr.name,)
                return 1
            case "select_expr":
                return self._select(expr)
            case "call_expr":
                return self._call(expr)
            case "list_expr":
                return self._list(expr)
            case "struct_expr":
                return self._struct(expr)
            case "comprehension_expr":
                is_bind = _is_bind(expr.comprehension_expr)
                return self._bind(expr) if is_bind else self._comprehension(expr)
        return 0

    def _select(self, expr: Expr) -> int:
        select = expr.select_expr
        cost = self.cost(select.operand)
        if select.test_only:
            return cost
        self._paths[expr.id] = (*self._path(select.operand), select.field)
        type_ = self._checked.type_of(select.operand)
        kind = "" if type_ is None else type_.WhichOneof("kind")
        return _sum(cost, int(kind in ("map_type", "message_type", "type_param")))

    def _list(self, expr: Expr) -> int:
        elements = expr.list_expr.elements
        cost = _sum(_LIST, *map(self.cost, elements))
        sizes = [self._size(element) for element in elements]
        self._entries[expr.id] = Entries(Size(1, 1), _union(sizes), is_list=True)
        return cost

    def _struct(self, expr: Expr) -> int:
        struct = expr.struct_expr
        values = [entry.value for entry in struct.entries]
        if struct.message_name:
            return _sum(_MESSAGE, *map(self.cost, values))
        keys = [entry.map_key for entry in struct.entries]
        cost = _sum(_MAP, *map(self.cost, keys), *map(self.cost, values))
        self._entries[expr.id] = Entries(
            _union([self._size(key) for key in keys]),
            _union([self._size(value) for value in values]),
            is_list=False,
        )
        return cost

    def _comprehension(self, expr: Expr) -> int:
        loop = expr.comprehension_expr
        cost = _sum(self.cost(loop.iter_range), self.cost(loop.accu_init))
        self._push(loop.accu_var, self._local(loop.accu_init))
        if loop.iter_var2:
            self._push(loop.iter_var, self._element(loop.iter_range, is_value=False))
            self._push(loop.iter_var2, self._element(loop.iter_range, is_value=True))
        else:
            is_list = self._is_list(loop.iter_range)
            self._push(loop.iter_var, self._element(loop.iter_range, is_value=is_list))
        each = _sum(self.cost(loop.loop_condition), self.cost(loop.loop_step))
        self._variables[loop.iter_var].pop()
        if loop.iter_var2:
            self._variables[loop.iter_var2].pop()
        cost = _sum(cost, self.cost(loop.result))
        self._variables[loop.accu_var].pop()
        count = self._size(loop.iter_range)
        match kind_of(loop.accu_init):
            case "const_expr":
                self._note(expr, self._size_or_none(loop.accu_init))
            case "list_expr" | "struct_expr":
                self._note(expr, count)
                self._note_entries(expr, self._entries_of(loop.loop_step))
        return _sum(cost, _product(count.most, each))

    def _bind(self, expr: Expr) -> int:
        """Return the cost of `cel.bind`, which the library makes a loop without iterations."""
        bind = expr.comprehension_expr
        cost = _sum(self.cost(bind.iter_range), self.cost(bind.accu_init))
        self._push(bind.accu_var, self._local(bind.accu_init))
        cost = _sum(cost, self.cost(bind.result))
        self._variables[bind.accu_var].pop()
        self._note(expr, self._size_or_none(bind.result))
        self._note_entries(expr, self._entries_of(bind.result))
        return cost

    def _call(self, expr: Expr) -> int:
        call = expr.call_expr
        arguments = list(call.args)
        if call.function == "dyn" and arguments:
            cost = _sum(1, self.cost(arguments[0]))
            self._note(expr, self._size_or_none(arguments[0]))
            self._note_entries(expr, self._entries_of(arguments[0]))
            return cost
        own = [self.cost(argument) for argument in arguments]
        target = call.target if call.HasField("target") else None
        before = 0 if target is None else self.cost(target)
        made = _Call(expr, call.function.removeprefix("kubernetes_"), target, arguments)
        estimates = [
            self._estimate(made, overload, own) for overload in self._checked.overloads(expr)
        ]
        if not estimates:
            return 0
        sizes = [one.size for one in estimates if one.size is not None]
        size = _union(sizes) if sizes else self._index(made)
        self._note(expr, size if size is not None else self._size_or_none(expr))
        return _sum(before, max(one.cost for one in estimates))

    def _index(self, call: _Call) -> Size | None:
        """Note the path of an element, and return its size as far as the container says it."""
        for overload in self._checked.overloads(call.expr):
            step = {"index_list": "@items", "index_map": "@values"}.get(overload)
            if step is not None:
                container = call.arguments[0]
                self._paths[call.expr.id] = (*self._path(container), step)
                entries = self._entries_of(container)
                return None if entries is None else entries.values
        return None

    def _estimate(self, call: _Call, overload: str, own: list[int]) -> _Estimate:
        """Return the cost of a call with its arguments, whose costs are given."""
        function = _FUNCTIONS.get(call.name)
        if function is not None and (found := function(self, call)) is not None:
            return _Estimate(_sum(found.cost, *own), found.size)
        match overload:
            case "logical_and" | "logical_or":
                return _Estimate(_sum(*own))
            case "conditional":
                return self._conditional(call, own)
            case "add_string" | "add_bytes" | "add_list":
                return self._addition(call, own, is_list=overload == "add_list")
            case "equals" if (cost := self._opaque_equality(call)) is not None:
                return _Estimate(_sum(cost, *own))
            case "equals" | "not_equals":
                return _Estimate(_sum(self._comparison(call), *own))
            case "in_list":
                return _Estimate(_sum(self._size(call.arguments[1]).most, *own))
        if call.name in _COMPARISONS and overload.endswith(("_string", "_bytes")):
            return _Estimate(_sum(self._comparison(call), *own))
        return _Estimate(_sum(1, *own))

    def _conditional(self, call: _Call, own: list[int]) -> _Estimate:
        condition, yes, no = own
        size = self._size(call.arguments[1]).union(self._size(call.arguments[2]))
        self._note_entries(call.expr, self._joined(call.arguments[1], call.arguments[2]))
        return _Estimate(_sum(condition, max(yes, no)), size)

    def _addition(self, call: _Call, own: list[int], *, is_list: bool) -> _Estimate:
        left, right = call.arguments
        size = self._size(left).plus(self._size(right))
        self._note_entries(call.expr, self._joined(left, right))
        return _Estimate(_sum(1 if is_list else _scaled(size.most, _CHAR), *own), size)

    def _comparison(self, call: _Call) -> int:
        return _scaled(min(self._size(one).most for one in call.arguments), _CHAR)

    def _opaque_equality(self, call: _Call) -> int | None:
        """Return the cost of `==` of two values of one of Kubernetes' own types, None for others.

        Upstream has no such rule for `!=`, whose estimate is that of values of any size.
        """
        names = {self._message_of(argument) for argument in call.arguments}
        name = names.pop()
        if names or not name.startswith(_OPAQUE):
            return None
        match name.removeprefix(_OPAQUE):
            case "NamedFormat":
                return _scaled(_FORMAT, _CHAR)
            case "URL":
                size = self._sizes.get(call.arguments[1].id)
                return _scaled(1 if size is None else size.most, _CHAR)
        return 1

    def _message_of(self, expr: Expr) -> str:
        type_ = self._checked.type_of(expr)
        return "" if type_ is None else str(type_.message_type)

    # What the parts of an expression are called and how large they are.

    def _variable(self, name: str) -> _Variable | None:
        stack = self._variables.get(name)
        return stack[-1] if stack else None

    def _push(self, name: str, variable: _Variable) -> None:
        self._variables.setdefault(name, []).append(variable)

    def _local(self, expr: Expr) -> _Variable:
        return _Variable(self._path(expr), self._size_or_none(expr), self._entries_of(expr))

    def _element(self, container: Expr, *, is_value: bool) -> _Variable:
        """Return the variable that stands for each key or value of a container."""
        entries, is_list = self._entries_of(container), self._is_list(container)
        size = None if entries is None else (entries.values if is_value else entries.keys)
        step = (
            ("@items" if is_list else "@values")
            if is_value
            else ("@indices" if is_list else "@keys")
        )
        return _Variable((*self._path(container), step), size, None)

    def _is_list(self, expr: Expr) -> bool:
        entries = self._entries_of(expr)
        if entries is not None:
            return entries.is_list
        type_ = self._checked.type_of(expr)
        return type_ is not None and type_.WhichOneof("kind") == "list_type"

    def _path(self, expr: Expr) -> Path:
        if kind_of(expr) == "ident_expr" and (own := self._variable(expr.ident_expr.name)):
            return own.path
        return self._paths.get(expr.id, ())

    def _note(self, expr: Expr, size: Size | None) -> None:
        if size is not None:
            self._sizes[expr.id] = size

    def _note_entries(self, expr: Expr, entries: Entries | None) -> None:
        if entries is not None:
            self._entries[expr.id] = entries

    def _entries_of(self, expr: Expr) -> Entries | None:
        found = self._entries.get(expr.id)
        if found is None and kind_of(expr) == "ident_expr":
            variable = self._variable(expr.ident_expr.name)
            return None if variable is None else variable.entries
        return found

    def _joined(self, left: Expr, right: Expr) -> Entries | None:
        one, other = self._entries_of(left), self._entries_of(right)
        if one is None or other is None:
            return None
        return Entries(one.keys.union(other.keys), one.values.union(other.values), one.is_list)

    def _size(self, expr: Expr) -> Size:
        size = self._size_or_none(expr)
        return _UNKNOWN if size is None else size

    def _size_or_none(self, expr: Expr) -> Size | None:
        if (noted := self._sizes.get(expr.id)) is not None:
            return noted
        if (own := _own_size(expr)) is not None:
            return own
        if (declared := self._declared_size(self._path(expr))) is not None:
            return declared
        if _is_scalar(self._checked.type_of(expr)):
            return Size(1, 1)
        if kind_of(expr) == "ident_expr" and (own_ := self._variable(expr.ident_expr.name)):
            return own_.size
        return None

    def _declared_size(self, path: Path) -> Size | None:
        if not path or path[0] in _ACCUMULATORS or self._root is None:
            return None
        declared = self._root.at(path[1:])
        return None if declared is None else Size(0, declared.most_elements)

    def element_size(self, container: Expr) -> Size:
        """Return the size of the items of a list."""
        path = self._path(container)
        declared = self._declared_size((*path, "@items")) if path else None
        return _UNKNOWN if declared is None else declared

    def is_text(self, expr: Expr) -> bool:
        """Return whether an expression is known to be a text."""
        type_ = self._checked.type_of(expr)
        return type_ is not None and type_.primitive == _STRING

    def is_bytes(self, expr: Expr) -> bool:
        """Return whether an expression is known to be bytes."""
        type_ = self._checked.type_of(expr)
        return type_ is not None and type_.primitive == _BYTES

    def has_texts(self, container: Expr) -> bool:
        """Return whether the items of a list are texts or bytes."""
        type_ = self._checked.type_of(container)
        if type_ is None or type_.WhichOneof("kind") != "list_type":
            return False
        return type_.list_type.elem_type.primitive in (_STRING, _BYTES)

    def is_list_typed(self, expr: Expr) -> bool:
        """Return whether an expression is known to be a list."""
        type_ = self._checked.type_of(expr)
        return type_ is not None and type_.WhichOneof("kind") == "list_type"

    def size(self, expr: Expr | None) -> Size:
        """Return the size of a value, from nothing to the largest where it is not known."""
        return _UNKNOWN if expr is None else self._size(expr)


def _union(sizes: list[Size]) -> Size:
    if not sizes:
        return Size(0, 0)
    return Size(min(one.least for one in sizes), max(one.most for one in sizes))


def _is_bind(loop: Expr) -> bool:
    is_empty = kind_of(loop.iter_range) == "list_expr" and not loop.iter_range.list_expr.elements
    condition = loop.loop_condition
    is_never = kind_of(condition) == "const_expr" and (
        condition.const_expr.WhichOneof("kind") == "bool_value"
        and not condition.const_expr.bool_value
    )
    return is_empty and is_never and loop.accu_var not in _ACCUMULATORS


def _own_size(expr: Expr) -> Size | None:
    """Return the size that the text of an expression says."""
    match kind_of(expr):
        case "const_expr":
            constant = expr.const_expr
            match constant.WhichOneof("kind"):
                case "string_value":
                    count = len(constant.string_value)
                case "bytes_value":
                    count = len(constant.bytes_value)
                case _:
                    count = 1
        case "list_expr":
            count = len(expr.list_expr.elements)
        case "struct_expr" if not expr.struct_expr.message_name:
            count = len(expr.struct_expr.entries)
        case _:
            return None
    return Size(count, count)


def _is_scalar(type_: Expr | None) -> bool:
    if type_ is None:
        return False
    match type_.WhichOneof("kind"):
        case "primitive":
            return type_.primitive in _SCALARS
        case "wrapper":
            return type_.wrapper in _SCALARS
        case "well_known":
            return type_.well_known in (_SPAN, _MOMENT)
        case "abstract_type" if type_.abstract_type.name == "optional_type":
            return _is_scalar(type_.abstract_type.parameter_types[0])
    return False


_Function = Callable[[_Estimator, _Call], _Estimate | None]


def _fixed(cost: int) -> _Function:
    return lambda *_: _Estimate(cost)


def _reads_target(factor: float, *, keeps_size: bool = False) -> _Function:
    """Return the estimate of a function that reads its target some times."""

    def estimate(estimator: _Estimator, call: _Call) -> _Estimate | None:
        if call.target is None:
            return None
        size = estimator.size(call.target)
        return _Estimate(_scaled(size.most, factor), size if keeps_size else None)

    return estimate


def _reads_argument(factor: float, *, keeps_size: bool = False) -> _Function:
    """Return the estimate of a function that reads its first argument some times."""

    def estimate(estimator: _Estimator, call: _Call) -> _Estimate | None:
        if not call.arguments:
            return None
        size = estimator.size(call.arguments[0])
        return _Estimate(_scaled(size.most, factor), size if keeps_size else None)

    return estimate


def _traversal(estimator: _Estimator, call: _Call) -> _Estimate | None:
    """Estimate a function that looks at each item of a list, or at each character of a text."""
    if call.target is None:
        return None
    count = estimator.size(call.target).most
    if not estimator.is_list_typed(call.target):
        return _Estimate(_scaled(count, _CHAR))
    each = 1
    if estimator.has_texts(call.target):
        each = _sum(each, _scaled(estimator.element_size(call.target).most, _CHAR))
    return _Estimate(_product(count, each))


def _matching(estimator: _Estimator, call: _Call) -> _Estimate | None:
    """Estimate the search for a regular expression."""
    text = call.target if call.target is not None else call.arguments[0]
    pattern = call.arguments[-1] if call.name == "matches" else call.arguments[0]
    size = estimator.size(text)
    characters = _scaled(_sum(size.most, 1), _CHAR)
    cost = _product(characters, _scaled(estimator.size(pattern).most, _PATTERN_CHAR))
    return _Estimate(cost, None if call.name == "matches" else Size(0, size.most))


def _containment(estimator: _Estimator, call: _Call) -> _Estimate | None:
    if call.target is None or not call.arguments:
        return None
    characters = _scaled(estimator.size(call.target).most, _CHAR)
    return _Estimate(_product(characters, _scaled(estimator.size(call.arguments[0]).most, _CHAR)))


def _replacement(estimator: _Estimator, call: _Call) -> _Estimate | None:
    if call.target is None or len(call.arguments) < 2:
        return None
    size, old, new = (estimator.size(one) for one in (call.target, *call.arguments[:2]))
    kept = 0
    if old.least == 0:
        count, kept = _sum(size.most, 1), size.most
    elif new.most <= old.least:
        count, kept = 0, size.most
    else:
        count = math.ceil(size.most / old.least)
    result = Size(0, _sum(_product(count, new.most), kept))
    return _Estimate(_scaled(size.most, 2 * _CHAR), result)


def _splitting(estimator: _Estimator, call: _Call) -> _Estimate | None:
    if call.target is None:
        return None
    most = estimator.size(call.target).most
    limit = most
    if len(call.arguments) > 1 and kind_of(call.arguments[1]) == "const_expr":
        wanted = call.arguments[1].const_expr.int64_value
        limit = wanted if wanted >= 0 else LARGEST
    return _Estimate(_scaled(most, 2 * _CHAR), Size(0, limit))


def _joining(estimator: _Estimator, call: _Call) -> _Estimate | None:
    if call.target is None:
        return None
    count = estimator.size(call.target).most
    most = _product(count, estimator.element_size(call.target).most)
    if call.arguments:
        separator = estimator.size(call.arguments[0]).most
        most = _sum(most, _product(separator, max(count - 1, 0)))
    return _Estimate(_scaled(most, _CHAR), Size(0, most))


def _network(more: int) -> _Function:
    """Return the estimate of a comparison of addresses, of which one may be a text."""

    def estimate(estimator: _Estimator, call: _Call) -> _Estimate | None:
        if not call.arguments:
            return None
        cost = _scaled(2 * _ADDRESS, _CHAR) + more
        (other,) = call.arguments
        if estimator.is_text(other):
            cost = _sum(cost, _scaled(estimator.size(other).most, _CHAR))
        return _Estimate(cost)

    return estimate


def _sets(factor: int) -> _Function:
    """Return the estimate of a function that compares each item of a list with all of another."""

    def estimate(estimator: _Estimator, call: _Call) -> _Estimate | None:
        left, right = (estimator.size(one).most for one in call.arguments)
        return _Estimate(_sum(1, _product(factor, _product(left, right))))

    return estimate


def _list_of(size: Size, factor: float = 1) -> _Estimate:
    """Return the estimate of a call that makes a list by some steps for each of its items."""
    return _Estimate(_sum(1, _LIST, _scaled(size.most, factor)), size)


def _number(expr: Expr, otherwise: int) -> int:
    """Return the number that an expression is, if it is one."""
    return expr.const_expr.int64_value if kind_of(expr) == "const_expr" else otherwise


def _slicing(estimator: _Estimator, call: _Call) -> _Estimate:
    start, end = call.arguments
    count = max(_number(end, estimator.size(call.target).most) - _number(start, 0), 0)
    return _list_of(Size(count, count))


def _counting(_: _Estimator, call: _Call) -> _Estimate:
    count = max(_number(call.arguments[0], LARGEST), 0)
    return _list_of(Size(count, count))


def _reversal(estimator: _Estimator, call: _Call) -> _Estimate | None:
    if call.target is None or not estimator.is_list_typed(call.target):
        return None
    return _list_of(estimator.size(call.target))


def _flattening(estimator: _Estimator, call: _Call) -> _Estimate:
    depth = _number(call.arguments[0], LARGEST) if call.arguments else 1
    return _list_of(estimator.size(call.target), depth)


def _sorting(estimator: _Estimator, call: _Call) -> _Estimate:
    """Estimate what compares the items of a list, or its keys, with each other."""
    items = call.arguments[0] if call.arguments else call.target
    size = estimator.size(items)
    is_costly = items is not None and call.name != "distinct" and estimator.has_texts(items)
    pairs = Size(_product(size.least, size.least), _product(size.most, size.most))
    return _list_of(pairs, 2 + _CHAR if is_costly else 2)


def _conversion(estimator: _Estimator, call: _Call) -> _Estimate | None:
    """Estimate a conversion between texts and bytes: a character has up to four of these."""
    (source,) = call.arguments
    size = estimator.size(source)
    cost = _scaled(size.most, _CHAR)
    if estimator.is_text(source):
        is_copied = call.name == "string"
        return None if is_copied else _Estimate(cost, Size(size.least, _product(size.most, 4)))
    if estimator.is_bytes(source) and call.name == "string":
        return _Estimate(cost, Size(size.least // 4, size.most))
    return None


def _quotation(estimator: _Estimator, call: _Call) -> _Estimate:
    size = estimator.size(call.arguments[0])
    quoted = Size(_sum(size.least, 2), _sum(_product(size.most, 2), 2))
    return _Estimate(_scaled(size.most, _CHAR), quoted)


_COMPARISONS = frozenset(("_<_", "_<=_", "_>_", "_>=_"))
_CHEAP = (
    "serviceAccount", "path", "group", "resource", "subresource", "namespace", "name", "allowed",
    "reason", "error", "errored", "masked", "prefixLength", "family", "isUnspecified",
    "isLoopback", "isLinkLocalMulticast", "isLinkLocalUnicast", "isGlobalUnicast", "sign",
    "asInteger", "isInteger", "asApproximateFloat", "isGreaterThan", "isLessThan", "compareTo",
    "add", "sub", "major", "minor", "patch", "getScheme", "getHostname", "getHost", "getPort",
    "getEscapedPath", "getQuery", "format.named",
)  # fmt: skip
_FUNCTIONS: dict[str, _Function] = {
    **dict.fromkeys(_CHEAP, _fixed(1)),
    "check": _fixed(_CHECK),
    **dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), _traversal),
    **dict.fromkeys(("url", "jsonpatch.escapeKey"), _reads_argument(_CHAR, keeps_size=True)),
    **dict.fromkeys(
        ("lowerAscii", "upperAscii", "substring", "trim"), _reads_target(_CHAR, keeps_size=True)
    ),
    "format": _reads_target(_CHAR),
    **dict.fromkeys(("startsWith", "endsWith"), _reads_argument(_CHAR)),
    **dict.fromkeys(
        ("cidr", "isIP", "isCIDR", "ip", "quantity", "isQuantity", "semver", "isSemver"),
        _reads_argument(_CHAR),
    ),
    "ip.isCanonical": _reads_argument(2 * _CHAR),
    "validate": _reads_argument(_CHAR * _FORMAT_PATTERN * _PATTERN_CHAR),
    "replace": _replacement,
    "split": _splitting,
    "join": _joining,
    **dict.fromkeys(("find", "findAll", "matches"), _matching),
    "contains": _containment,
    "containsIP": _network(0),
    "containsCIDR": _network(_scaled(_ADDRESS, _CHAR) + 1),
    **dict.fromkeys(("sets.contains", "sets.intersects"), _sets(1)),
    "sets.equivalent": _sets(2),
    "slice": _slicing,
    "lists.range": _counting,
    "reverse": _reversal,
    "flatten": _flattening,
    **dict.fromkeys(("distinct", "sort", "@sortByAssociatedKeys"), _sorting),
    **dict.fromkeys(("string", "bytes"), _conversion),
    "strings.quote": _quotation,
}
"""Functions whose cost is not that of their overload."""
