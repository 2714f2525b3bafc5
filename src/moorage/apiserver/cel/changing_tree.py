"""Changing trees: how the tree of an expression is made to count.

New expressions have ids above those of the parser. What stands for a value of the original has its
type.
"""

from __future__ import annotations

from moorage.apiserver.cel.checked import CheckedExpression, Expr, kind_of, make_expr
from moorage.apiserver.cel.library.counting import COST

_FIRST_ID = 1 << 32


class ChangingTree:
    """The tree of an expression that is being changed."""

    def __init__(self, checked: CheckedExpression) -> None:
        self._checked = checked
        self._next = _FIRST_ID
        self._names = 0

    def guard(self, expr: Expr, charge: Expr, *bindings: Expr | None) -> None:
        """Replace an expression by one that charges first, in the scope of bindings."""
        whole = self.call("_?_:_", charge, expr, self._true())
        for binding in reversed(bindings):
            if binding is not None:
                binding.comprehension_expr.result.CopyFrom(whole)
                whole = binding
        self._checked.share_type(whole, expr)
        expr.CopyFrom(whole)

    def shared(self, operand: Expr) -> tuple[Expr, Expr | None]:
        """Return an expression of an operand's value, and what binds it to a name if it had none.

        The operand becomes that name: it is evaluated once.
        """
        if kind_of(operand) in ("ident_expr", "const_expr"):
            return operand, None
        self._names += 1
        name = f"@value{self._names}"
        binding = self.empty()
        loop = binding.comprehension_expr
        loop.iter_var, loop.accu_var = "#unused", name
        loop.iter_range.CopyFrom(self.list())
        loop.accu_init.CopyFrom(operand)
        loop.loop_condition.CopyFrom(self.empty())
        loop.loop_condition.const_expr.bool_value = False
        loop.loop_step.CopyFrom(self.ident(name))
        value = self.ident(name)
        self._checked.share_type(value, operand)
        operand.CopyFrom(value)
        return value, binding

    def empty(self) -> Expr:
        """Return a new expression without a kind."""
        expr = make_expr(self._next)
        self._next += 1
        return expr

    def call(self, function: str, *arguments: Expr) -> Expr:
        """Return a call."""
        expr = self.empty()
        expr.call_expr.function = function
        for argument in arguments:
            expr.call_expr.args.add().CopyFrom(argument)
        return expr

    def member(self, function: str, target: Expr) -> Expr:
        """Return a call of a member without arguments."""
        expr = self.call(function)
        expr.call_expr.target.CopyFrom(target)
        return expr

    def list(self, *elements: Expr) -> Expr:
        """Return a list."""
        expr = self.empty()
        expr.list_expr.SetInParent()
        expr.list_expr.elements.extend(elements)
        return expr

    def ident(self, name: str) -> Expr:
        """Return a variable."""
        expr = self.empty()
        expr.ident_expr.name = name
        return expr

    def number(self, number: int) -> Expr:
        """Return a constant."""
        expr = self.empty()
        expr.const_expr.int64_value = number
        return expr

    def text(self, text: str) -> Expr:
        """Return a constant."""
        expr = self.empty()
        expr.const_expr.string_value = text
        return expr

    def _true(self) -> Expr:
        expr = self.empty()
        expr.const_expr.bool_value = True
        return expr

    def cost(self, cost: int) -> Expr:
        """Return a call that charges a number."""
        return self.call(COST, self.number(cost))

    def either(self, left: Expr, right: Expr) -> Expr:
        """Return the first that has a value: a charge that does not fit the values has none."""
        return self.call("_||_", left, right)
