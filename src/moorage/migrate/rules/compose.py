"""Compose files: the runtime of each service, as the class of a workload.

A Compose file stays as it is, since Docker reads it. The class goes to the workload that kompose
made of the service, or into a patch for a Deployment of the service's name. Source: the Compose
specification, `services.NAME.runtime` and `isolation`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from moorage.migrate.rules.changes import Insert, below
from moorage.migrate.rules.findings import Outcome, Severity, note, refused
from moorage.migrate.rules.handler_files import table, text
from moorage.migrate.rules.pod_templates import template_path

SERVICE_LABEL = "io.kompose.service"
"""Label of kompose for the service that a workload was made of."""

_VARIABLE = re.compile(r"\$(?:\{|[A-Za-z_])")
_HYPERV = "hyperv"


def is_compose(document: dict[str, Any]) -> bool:
    """Return whether a document without `kind` is a Compose file."""
    return "apiVersion" not in document and isinstance(document.get("services"), dict)


def service_runtimes(
    services: Mapping[str, Any],
) -> tuple[dict[str, str], list[tuple[Severity, str]]]:
    """Return the runtime of each service that names one, and the findings.

    Windows' `isolation: hyperv` counts as a runtime of that name. A runtime that a variable names
    is refused: its value is the caller's environment's.
    """
    runtimes: dict[str, str] = {}
    notes: list[tuple[Severity, str]] = []
    for name, entry in services.items():
        service = table(entry)
        runtime = service.get("runtime")
        if runtime is None and service.get("isolation") == _HYPERV:
            runtime = _HYPERV
        if drivers := _device_drivers(service):
            sentence = f"service {name}: its devices of {', '.join(drivers)} choose no class"
            notes.append(note(sentence))
        if runtime is None:
            continue
        if not isinstance(runtime, str) or not runtime:
            notes.append(refused(f"service {name}: its runtime is not a name; correct it"))
        elif _VARIABLE.search(runtime):
            notes.append(
                refused(
                    f"service {name}: its runtime {runtime!r} has a variable; migrate the output "
                    "of `docker compose config`"
                )
            )
        else:
            runtimes[name] = runtime
    return runtimes, notes


def _device_drivers(service: dict[str, Any]) -> list[str]:
    resources = table(table(service.get("deploy")).get("resources"))
    devices = table(resources.get("reservations")).get("devices")
    drivers = (text(table(one).get("driver")) for one in devices or () if isinstance(devices, list))
    return sorted({driver for driver in drivers if driver})


def service_of(document: dict[str, Any]) -> str:
    """Return the Compose service that kompose made a workload of, empty if it did not."""
    metadata = table(document.get("metadata"))
    service = table(metadata.get("labels")).get(SERVICE_LABEL)
    return service if isinstance(service, str) else ""


def migrate_service(document: dict[str, Any], class_name: str) -> Outcome:
    """Return the operation that gives a workload of a service its class, if it names none."""
    path = template_path(document)
    if path is None:
        return Outcome()
    spec: Any = document
    for step in (*path, "spec"):
        spec = spec[step]
    present = spec.get("runtimeClassName")
    if present == class_name:
        return Outcome()
    if "runtimeClassName" in spec:
        sentence = (
            f"its service has class {class_name!r}, but runtimeClassName is {str(present)[:80]!r}"
        )
        return Outcome(notes=[refused(f"{sentence}; keep one")])
    operations = [Insert(("spec",), "runtimeClassName", class_name)]
    return Outcome(below(path, operations))


def deployment_patch(service: str, class_name: str) -> dict[str, Any]:
    """Return a strategic merge patch for the Deployment of a service."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": service},
        "spec": {"template": {"spec": {"runtimeClassName": class_name}}},
    }
