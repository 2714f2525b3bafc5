"""RuntimeClass objects of former versions as node.k8s.io/v1.

The CRD of 1.12 and 1.13 and v1alpha1 nest everything below `spec`; v1beta1 differs in its version
alone. The CRD allowed dots in handlers and no handler at all, which no version since does. Source:
KEP-585, conversions of node.k8s.io of Kubernetes 1.24.
"""

from __future__ import annotations

from typing import Any

import msgspec

from moorage.api.names import dns_subdomain_errors
from moorage.api.runtime_group import RuntimeClass
from moorage.migrate.rules.changes import (
    Insert,
    LiftSpec,
    Operation,
    Outcome,
    Remove,
    RenameError,
    RenameTable,
    Replace,
    applied,
    note,
    refused,
)
from moorage.runtimeclass.validation import class_errors

GROUP = "node.k8s.io"
V1 = f"{GROUP}/v1"
_FORMER = (f"{GROUP}/v1alpha1", f"{GROUP}/v1beta1")
_KIND = "RuntimeClass"
_CRD = "runtimeclasses.node.k8s.io"


def is_class(document: dict[str, Any]) -> bool:
    """Return whether a document is a RuntimeClass of any version."""
    return document.get("kind") == _KIND and document.get("apiVersion") in (V1, *_FORMER)


def handler_of(document: dict[str, Any]) -> str:
    """Return the handler of a class of any version, empty if it has none."""
    spec = document.get("spec")
    nested = spec.get("runtimeHandler") if isinstance(spec, dict) else None
    handler = document.get("handler") or nested
    return handler if isinstance(handler, str) else ""


def migrate_class(
    document: dict[str, Any], renames: RenameTable, default_handler: str = ""
) -> Outcome:
    """Return the operations that make a class v1, none if it is.

    `default_handler` is for classes without a handler, which meant the runtime's default one. A
    class that would not be valid in v1 is refused, with the reasons.
    """
    try:
        operations = _operations(document, renames, default_handler)
    except RenameError as error:
        return Outcome(notes=[refused(str(error))])
    except _AmbiguousError as error:
        return Outcome(notes=[refused(str(error))])
    if not operations:
        return Outcome()
    if problem := _problem(applied(document, operations)):
        return Outcome(notes=[refused(f"it would not be a valid v1 RuntimeClass: {problem}")])
    return Outcome(operations=operations)


def migrate_definition(document: dict[str, Any]) -> Outcome:
    """Return a remark for the CRD that RuntimeClasses were stored under in 1.12 and 1.13."""
    metadata = document.get("metadata")
    if (
        document.get("kind") != "CustomResourceDefinition"
        or not isinstance(metadata, dict)
        or metadata.get("name") != _CRD
    ):
        return Outcome()
    return Outcome(
        notes=[
            note(
                f"RuntimeClasses are built in since Kubernetes 1.14: delete the CRD {_CRD} after "
                "the classes exist in v1"
            )
        ]
    )


class _AmbiguousError(ValueError):
    """The class does not say which handler it means."""


def _operations(
    document: dict[str, Any], renames: RenameTable, default_handler: str
) -> list[Operation]:
    spec = document.get("spec")
    nested = spec.get("runtimeHandler") if isinstance(spec, dict) else None
    flat = document.get("handler")
    if flat and nested:
        raise _AmbiguousError("it has both handler and spec.runtimeHandler; remove one")
    old = flat or nested
    if old is not None and not isinstance(old, str):
        raise _AmbiguousError("its handler is not a text; correct it")
    handler = renames.new_name(old) if old else default_handler
    if not handler:
        raise _AmbiguousError(
            "it names no handler, which meant the runtime's default one and is invalid since "
            "v1beta1; name that handler with --default-handler"
        )
    operations: list[Operation] = []
    if document.get("apiVersion") != V1:
        operations.append(Replace(("apiVersion",), V1))
    if flat:
        if flat != handler:
            operations.append(Replace(("handler",), handler))
    elif isinstance(spec, dict):
        if "handler" in document:
            operations.append(Remove((), ("handler",)))
        operations.append(LiftSpec((), handler))
    else:
        absent = tuple(key for key in ("handler", "spec") if key in document)
        if absent:
            operations.append(Remove((), absent))
        operations.append(Insert((), "handler", handler, after="metadata"))
    return operations


def _problem(document: dict[str, Any]) -> str:
    """Return the errors of a v1 class, empty if it is valid."""
    try:
        runtime_class = msgspec.convert(document, RuntimeClass)
        errors = [str(error) for error in class_errors(runtime_class)]
    except ValueError as error:
        # A wrong type, or a quantity that is none.
        return str(error)
    name = runtime_class.metadata.name
    if not name and not runtime_class.metadata.generate_name:
        errors.append("metadata.name: Required value")
    elif name:
        errors += [f"metadata.name: {complaint}" for complaint in dns_subdomain_errors(name)]
    return "; ".join(errors)
