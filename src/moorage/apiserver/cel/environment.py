"""CEL environment: the functions and extensions that expressions of Kubernetes may use.

Source: API docs "CEL community libraries", "Kubernetes CEL libraries"; apiserver
`pkg/cel/environment` of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from cel_expr_python import cel

from moorage.apiserver.cel.library import (
    addresses,
    authorization,
    counting,
    formats,
    json_patches,
    lists,
    quantities,
    regex,
    semver,
    urls,
)
from moorage.apiserver.cel.library.declaring import CelType, declare
from moorage.apiserver.cel.library.opaque import POOL

_EXTENSIONS = """
name: kubernetes
extensions:
- name: optional
- name: strings
- name: sets
- name: lists
- name: math
- name: two-var-comprehensions
- name: bindings
"""
_ENVIRONMENTS = 256
_LIBRARIES = (
    addresses, authorization, formats, json_patches, lists, quantities, regex, semver, urls,
)  # fmt: skip


@cache
def _functions() -> list[cel.FunctionDecl]:
    signatures = (signature for library in _LIBRARIES for signature in library.functions())
    return [*declare(signatures), *counting.declarations()]


@cache
def charged_functions() -> frozenset[str]:
    """Return the names of the functions that charge for their calls."""
    return frozenset(name for library in _LIBRARIES for name, _ in library.functions())


_made: dict[str, cel.Env] = {}


def make_typed_environment(pool: Any, variables: Mapping[str, CelType]) -> cel.Env:
    """Return an environment that knows the message types of a pool."""
    return cel.NewEnv(
        descriptor_pool=pool,
        config=cel.NewEnvConfigFromYaml(_EXTENSIONS),
        variables=dict(variables),
        functions=_functions(),
    )


def make_environment(variables: Mapping[str, CelType]) -> cel.Env:
    """Return the environment with these variables, made when first asked for."""
    key = str(sorted((name, str(type_)) for name, type_ in variables.items()))
    if key not in _made:
        if len(_made) >= _ENVIRONMENTS:
            _made.clear()
        _made[key] = make_typed_environment(POOL, variables)
    return _made[key]
