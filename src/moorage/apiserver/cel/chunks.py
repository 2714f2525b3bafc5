"""Lists of loops: `map` and `filter` gather their items in chunks.

The CEL library copies the list in each round, so that the memory of 8,000 items would be a GiB;
kube-apiserver's adds to it in place. Here the accumulator is `[chunks, chunk]`: a round copies one
chunk, and every 32nd the list of chunks.
"""

from __future__ import annotations

from moorage.apiserver.cel.changing_tree import ChangingTree
from moorage.apiserver.cel.checked import Expr, kind_of

ACCUMULATORS = ("@result", "__result__")
"""What macros make of their items, which is added to without a copy."""

_CHUNK_ITEMS = 32


def makes_list(loop: Expr) -> bool:
    """Return whether a loop that was not changed is that of a macro that gathers a list."""
    name, start, step = loop.accu_var, loop.accu_init, loop.loop_step
    if name not in ACCUMULATORS or loop.result.ident_expr.name != name:
        return False
    if kind_of(start) != "list_expr" or start.list_expr.elements:
        return False
    if step.call_expr.function == "_?_:_":
        step = step.call_expr.args[1]
    call = step.call_expr
    is_sum = call.function == "_+_" and call.args[0].ident_expr.name == name
    return is_sum and kind_of(call.args[1]) == "list_expr"


def gather_in_chunks(tree: ChangingTree, loop: Expr) -> None:
    """Change a loop that gathers a list, after it was made to count."""
    chunks, chunk = (
        tree.call("_[_]", tree.ident(loop.accu_var), tree.number(place)) for place in (0, 1)
    )
    is_full = tree.call("_>=_", tree.call("size", chunk), tree.number(_CHUNK_ITEMS))
    sum_ = loop.loop_step
    while sum_.call_expr.function == "_?_:_":
        sum_ = sum_.call_expr.args[1]
    item = sum_.call_expr.args[1]
    more_chunks = tree.call("_+_", chunks, tree.list(chunk))
    sum_.CopyFrom(
        tree.list(
            tree.call("_?_:_", is_full, more_chunks, chunks),
            tree.call("_+_", tree.call("_?_:_", is_full, tree.list(), chunk), item),
        )
    )
    loop.accu_init.CopyFrom(tree.list(tree.list(), tree.list()))
    loop.result.CopyFrom(tree.call("_+_", tree.member("flatten", chunks), chunk))
