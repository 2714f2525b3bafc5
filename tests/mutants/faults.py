"""Faults that can be put into one source file, each a change of one expression or statement.

A fault replaces the text of one syntax node, so its diff stays as small as the change. Text that
no test should depend on is left alone: docstrings, logging, annotations, error wording, `__all__`,
`__repr__`, timeouts and sizes.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
_TUNING = re.compile(
    r"(?i)(timeout|deadline|interval|period|budget|backlog|chunk|remembered|step|tries|_s|_ms|seconds"
    r"|bytes|bufsize)$"
)
_TYPING_CALLS = {
    "cast",
    "TypeVar",
    "NewType",
    "ParamSpec",
    "field",
    "dataclass",
    "getLogger",
    "Log",
}
# Functions that do not care about the order of their arguments.
_SYMMETRIC = {"min", "max"}
_COMMUTATIVE = {"min", "max"}
_LOGGERS = {"log", "_log", "_LOG", "logger", "_logger"}
_UNTESTED_FUNCTIONS = {"__repr__", "__str__"}
_UNTESTED_NAMES = {"__all__", "__slots__", "__version__"}


@dataclass(frozen=True, order=True, slots=True)
class Fault:
    """One change of a file. `line` and `column` are where the replaced node starts.

    `function` is the first line of the innermost function around it, as that function's code object
    has it, and 0 outside functions.
    """

    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    kind: str
    replacement: str
    function: int

    @property
    def name(self) -> str:
        return f"{self.path}:{self.line}:{self.column} {self.kind}"


def apply_fault(source: str, fault: Fault) -> str:
    """Return the source with the fault in it. Columns are in UTF-8 bytes, as `ast` counts them."""
    lines = source.encode().splitlines(keepends=True)
    head = b"".join(lines[: fault.line - 1]) + lines[fault.line - 1][: fault.column]
    tail = lines[fault.end_line - 1][fault.end_column :] + b"".join(lines[fault.end_line :])
    return (head + fault.replacement.encode() + tail).decode()


def find_faults(path: str, source: str) -> list[Fault]:
    """Return every fault of a file, in the order of the file."""
    finder = _Finder(path)
    finder.visit(ast.parse(source))
    unchanged = ast.dump(ast.parse(source))
    return sorted(
        fault for fault in set(finder.faults) if _is_valid(apply_fault(source, fault), unchanged)
    )


def _is_valid(source: str, unchanged: str) -> bool:
    try:
        return ast.dump(ast.parse(source)) != unchanged
    except SyntaxError:
        return False


class _Finder(ast.NodeVisitor):
    """Collects the faults of a module while it knows which function it is in."""

    def __init__(self, path: str) -> None:
        self.faults: list[Fault] = []
        self._path = path
        self._function = 0
        self._in_raise = False

    # What holds nothing to test.

    def visit_Module(self, node: ast.Module) -> None:
        self._body(node.body)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        if not any(_is_typing_protocol(base) for base in node.bases):
            self._body(node.body)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        decorators = {_name(decorator) for decorator in node.decorator_list}
        if node.name in _UNTESTED_FUNCTIONS or decorators & {"overload", "abstractmethod"}:
            return
        outer, self._function = (
            self._function,
            min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]),
        )
        arguments = node.args
        names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
        pairs = [
            *zip(reversed(names), reversed(arguments.defaults), strict=False),
            *((argument.arg, default) for argument, default in zip(
                arguments.kwonlyargs, arguments.kw_defaults, strict=True)),
        ]  # fmt: skip
        for name, default in pairs:
            if default is not None and not _TUNING.search(name):
                self.visit(default)
        self._body(node.body)
        self._function = outer

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_If(self, node: ast.If) -> None:
        if _name(node.test) == "TYPE_CHECKING":
            return
        self._negate(node.test)
        self.generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> None:
        """Assertions in the product are for the type checker."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._assigned([node.target], node)

    def visit_Assign(self, node: ast.Assign) -> None:
        self._assigned(node.targets, node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._add(node, "removed statement", "pass")
        self.visit(node.value)

    def visit_Delete(self, node: ast.Delete) -> None:
        if not all(isinstance(target, ast.Name) for target in node.targets):
            self._add(node, "removed statement", "pass")

    def visit_Expr(self, node: ast.Expr) -> None:
        value = node.value
        call = value.value if isinstance(value, ast.Await) else value
        if isinstance(value, ast.Constant) or _is_logging(call):
            return
        if isinstance(call, ast.Call):
            kind = "removed await" if isinstance(value, ast.Await) else "removed call"
            self._add(node, kind, "pass")
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._add(node, "removed raise", "pass")
        outer, self._in_raise = self._in_raise, True
        self.generic_visit(node)
        self._in_raise = outer

    def visit_Return(self, node: ast.Return) -> None:
        value = node.value
        if value is None:
            self._add(node, "removed return", "pass")
            return
        if isinstance(value, ast.Constant):
            if isinstance(value.value, bool):
                self._add(node, "other return", f"return {not value.value}")
                return
        else:
            self._add(node, "early return", "return None")
        self.visit(value)

    def visit_Break(self, node: ast.Break) -> None:
        self._add(node, "removed break", "pass")

    def visit_Continue(self, node: ast.Continue) -> None:
        self._add(node, "removed continue", "pass")
        self._add(node, "break for continue", "break")

    def visit_Try(self, node: ast.Try) -> None:
        for handler in node.handlers:
            self._replace_body(handler.body, "dropped except", "raise")
        if node.finalbody:
            self._replace_body(node.finalbody, "dropped finally", "pass")
        for child in (*node.body, *node.orelse, *node.finalbody):
            self.visit(child)
        for handler in node.handlers:
            self._body(handler.body)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._add(node, "one branch", f"({ast.unparse(node.body)})")
        self._add(node, "one branch", f"({ast.unparse(node.orelse)})")
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for condition in node.ifs:
            self._add(condition, "dropped filter", "True")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        other = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
        self._replace(node, "and/or", ast.BoolOp(other, node.values))
        for index in range(len(node.values)):
            rest = [value for at, value in enumerate(node.values) if at != index]
            left = rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
            self._replace(node, "dropped operand", left)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._replace(node, "dropped not", node.operand)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        for index, operator in enumerate(node.ops):
            for other in _COMPARISONS[type(operator)]:
                operators = [*node.ops[:index], other(), *node.ops[index + 1 :]]
                changed = ast.Compare(node.left, operators, node.comparators)
                self._replace(node, "comparison", changed)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        other = _OPERATORS.get(type(node.op))
        if other is not None and not any(
            isinstance(side, ast.JoinedStr | ast.Constant) and not _is_number(side)
            for side in (node.left, node.right)
        ):
            self._replace(node, "operator", ast.BinOp(node.left, other(), node.right))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if _is_logging(node) or _name(node.func) in _TYPING_CALLS:
            return
        has_star = any(isinstance(part, ast.Starred) for part in node.args)
        is_symmetric = isinstance(node.func, ast.Name) and node.func.id in _SYMMETRIC
        if len(node.args) >= 2 and not (has_star or is_symmetric or self._in_raise):
            swapped = [node.args[1], node.args[0], *node.args[2:]]
            self._replace(node, "swapped arguments", ast.Call(node.func, swapped, node.keywords))
        for index, keyword in enumerate(node.keywords):
            if keyword.arg is None or _TUNING.search(keyword.arg) or self._in_raise:
                continue
            if _TUNING.search(_name(keyword.value)):
                continue
            if keyword.arg == "strict":
                continue  # Of `zip`: it checks the caller.
            rest = [*node.keywords[:index], *node.keywords[index + 1 :]]
            self._replace(node, "dropped keyword", ast.Call(node.func, node.args, rest))
        self.visit(node.func)
        for argument in node.args:
            self.visit(argument)
        for keyword in node.keywords:
            if keyword.arg is None or not (_TUNING.search(keyword.arg) or keyword.arg == "strict"):
                self.visit(keyword.value)

    def visit_Dict(self, node: ast.Dict) -> None:
        for index in range(len(node.keys)):
            keys = [*node.keys[:index], *node.keys[index + 1 :]]
            values = [*node.values[:index], *node.values[index + 1 :]]
            self._replace(node, "dropped entry", ast.Dict(keys, values))
        self.generic_visit(node)

    def visit_Set(self, node: ast.Set) -> None:
        self._dropped_element(node)

    def visit_List(self, node: ast.List) -> None:
        self._dropped_element(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, bool):
            self._add(node, "constant", str(not value))
        elif isinstance(value, int | float):
            self._add(node, "constant", repr(value + 1) if value != 1 else "0")
        elif isinstance(value, str) and value and " " not in value and not self._in_raise:
            self._add(node, "constant", repr(f"{value}x"))

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """The wording of messages; the expressions within it are not changed either."""

    def visit_arguments(self, node: ast.arguments) -> None:
        """Of lambdas only: functions visit their defaults themselves."""
        for default in (*node.defaults, *node.kw_defaults):
            if default is not None:
                self.visit(default)

    # How faults are made.

    def _body(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            self.visit(statement)

    def _assigned(self, targets: list[ast.expr], node: ast.Assign | ast.AnnAssign) -> None:
        names = [_name(target) for target in targets]
        if any(name in _UNTESTED_NAMES for name in names) or node.value is None:
            return
        if not self._function and _is_type(node.value):
            return  # The name of a type.
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Attribute | ast.Subscript) for target in targets
        ):
            self._add(node, "removed statement", "pass")
        if _is_arithmetic(node.value) and any(_TUNING.search(name) for name in names):
            return
        if self._function or not _is_text(node.value):
            self.visit(node.value)

    def _negate(self, test: ast.expr) -> None:
        if not isinstance(test, ast.Compare | ast.BoolOp | ast.UnaryOp):
            self._add(test, "negated condition", f"not ({ast.unparse(test)})")

    def _dropped_element(self, node: ast.List | ast.Set) -> None:
        if isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
            for index in range(len(node.elts)):
                rest = [*node.elts[:index], *node.elts[index + 1 :]]
                changed = (
                    ast.List(rest, ast.Load()) if isinstance(node, ast.List) else ast.Set(rest)
                )
                self._replace(node, "dropped element", changed)
        self.generic_visit(node)

    def _replace_body(self, body: list[ast.stmt], kind: str, text: str) -> None:
        first, last = body[0], body[-1]
        if not (len(body) == 1 and isinstance(first, ast.Pass | ast.Raise)):
            self._add_span(first, last, kind, text)

    def _replace(self, node: ast.expr, kind: str, changed: ast.expr) -> None:
        text = ast.unparse(ast.fix_missing_locations(changed))
        self._add(node, kind, text if isinstance(changed, ast.Call | ast.Dict) else f"({text})")

    def _add(self, node: ast.expr | ast.stmt, kind: str, text: str) -> None:
        self._add_span(node, node, kind, text)

    def _add_span(
        self, first: ast.expr | ast.stmt, last: ast.expr | ast.stmt, kind: str, text: str
    ) -> None:
        end_line, end_column = last.end_lineno, last.end_col_offset
        if end_line is not None and end_column is not None:
            self.faults.append(
                Fault(
                    self._path,
                    first.lineno,
                    first.col_offset,
                    end_line,
                    end_column,
                    kind,
                    text,
                    self._function,
                )
            )


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Call | ast.Subscript):
        return _name(node.func if isinstance(node, ast.Call) else node.value)
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _is_typing_protocol(base: ast.expr) -> bool:
    # Not `asyncio.Protocol`, whose classes do the work.
    is_of_asyncio = isinstance(base, ast.Attribute) and _name(base.value) == "asyncio"
    return _name(base) == "Protocol" and not is_of_asyncio


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)


def _is_arithmetic(node: ast.expr) -> bool:
    """Whether it is a number or a sum or product of numbers."""
    if isinstance(node, ast.BinOp):
        return _is_arithmetic(node.left) and _is_arithmetic(node.right)
    return _is_number(node)


def _is_type(node: ast.expr) -> bool:
    """Whether a value outside of functions can be a type: `A[B]`, or a union with such a part."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return _is_type(node.left) or _is_type(node.right)
    return isinstance(node, ast.Subscript)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and not _is_number(node)


def _is_logging(node: ast.expr) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    return _name(node.func.value) in _LOGGERS
