"""Declarations of functions, without the repetition."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from cel_expr_python import cel

from moorage.apiserver.cel.library.call_costs import metered

Type = cel.Type
CelType: TypeAlias = Any
"""One of these types; the library has no type hints."""

Signature = tuple[str, cel.Overload]
"""A function's name and one of its overloads; several libraries may give overloads to a name."""


def function(
    name: str, arguments: list[CelType], result: CelType, call: Callable[..., Any]
) -> Signature:
    """Return a signature that is called as `name(a, b)`. Calls are charged for."""
    return name, cel.Overload(
        _identity(name, arguments), result, arguments, False, metered(name, call)
    )


def method(
    name: str, arguments: list[CelType], result: CelType, call: Callable[..., Any]
) -> Signature:
    """Return a signature that is called as `a.name(b)`. Calls are charged for."""
    identity = _identity(f"{arguments[0]}.{name}", arguments)
    return name, cel.Overload(identity, result, arguments, True, metered(name, call))


def _identity(name: str, arguments: Iterable[CelType]) -> str:
    return "_".join((name, *map(str, arguments)))


def declare(signatures: Iterable[Signature]) -> list[cel.FunctionDecl]:
    """Return the declarations of functions from their signatures."""
    overloads = defaultdict(list)
    for name, overload in signatures:
        overloads[name].append(overload)
    return [cel.FunctionDecl(name, own) for name, own in overloads.items()]


def holds(parse: Callable[[str], Any]) -> Callable[[str], bool]:
    """Return whether a text can be parsed, as a function."""

    def check(text: str) -> bool:
        try:
            parse(text)
        except ValueError:
            return False
        return True

    return check
