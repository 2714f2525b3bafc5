"""Reports of results: text for people, JSON for programs, SARIF for code review.

Source: SARIF 2.1.0 (OASIS).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from moorage import __version__
from moorage.api.text import printable

# Results of checks: what stands against a workload, where, and which rule says so.

ERROR, WARNING = "error", "warning"

RULES = {
    "unreadable": "The file cannot be read as manifests.",
    "invalid": "The definition of the object's kind does not allow a field or its value.",
    "class-missing": "The pod names a RuntimeClass that does not exist.",
    "handler-missing": "No node that the pod may use has the handler of its class.",
    "no-node": "No node matches the nodeSelector of the pod's class.",
    "features-unknown": "No probe has looked at the handler of the pod's class yet.",
    "class-choice": "No class fits the needs of the pod, or its default class does not exist.",
    "floor": "The isolation of the pod's class is below the floor of its namespace.",
    "allow-list": "The policies of the namespace do not allow the pod's class.",
    "class-closed": "The pod names a RuntimeClass that is there for probes alone.",
    "feature": "The pod asks its class for a feature that the class lacks.",
}
"""Rule → what it says, in one sentence."""


class Result(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One result. `line` counts from 1; `level` is error for what an API server would refuse.

    `classes` are those that would do, the cheapest first.
    """

    file: str
    line: int
    rule: str
    level: str
    message: str
    kind: str = ""
    namespace: str = ""
    name: str = ""
    field: str = ""
    classes: tuple[str, ...] = ()


FORMATS = ("text", "json", "sarif")
_SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)


def report(results: Sequence[Result], form: str, *, checked: int) -> str:
    """Return results as one of `FORMATS`; `checked` is the number of workloads."""
    if form == "json":
        return _json({"workloads": checked, "results": results})
    if form == "sarif":
        return _json(_sarif(results))
    return _text(results, checked)


def _text(results: Sequence[Result], checked: int) -> str:
    lines = [printable(_line(result)) for result in results]
    errors = sum(result.level == ERROR for result in results)
    warnings = len(results) - errors
    lines.append(
        f"{_counted(checked, 'workload')} checked: {_counted(errors, 'error')}, "
        f"{_counted(warnings, 'warning')}"
    )
    return "\n".join(lines)


def _line(result: Result) -> str:
    subject = f"{result.kind} {result.namespace}/{result.name}: " if result.kind else ""
    field = f"{result.field}: " if result.field else ""
    return (
        f"{result.file}:{result.line}: {result.level}: {subject}{field}{result.message} "
        f"[{result.rule}]"
    )


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _json(document: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()


def _sarif(results: Sequence[Result]) -> dict[str, Any]:
    rules = list(RULES)
    driver = {
        "name": "moor check",
        "version": __version__,
        "rules": [{"id": rule, "shortDescription": {"text": text}} for rule, text in RULES.items()],
    }
    return {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": driver},
                "columnKind": "unicodeCodePoints",
                "results": [_sarif_result(result, rules.index(result.rule)) for result in results],
            }
        ],
    }


def _sarif_result(result: Result, rule: int) -> dict[str, Any]:
    location: dict[str, Any] = {
        "physicalLocation": {
            "artifactLocation": {"uri": _uri(result.file)},
            "region": {"startLine": result.line},
        }
    }
    if result.field:
        name = f"{result.kind} {result.namespace}/{result.name}"
        location["logicalLocations"] = [{"fullyQualifiedName": f"{name} {result.field}"}]
    return {
        "ruleId": result.rule,
        "ruleIndex": rule,
        "level": result.level,
        "message": {"text": result.message},
        "locations": [location],
        "properties": {"classes": list(result.classes)},
    }


def _uri(file: str) -> str:
    """Return a file as a URI reference, relative where the file is."""
    return f"file://{quote(file)}" if file.startswith("/") else quote(file)
