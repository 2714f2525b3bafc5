"""Compose files: the runtime of each service, as the class of a workload.

A Compose file stays as it is, since Docker reads it. The class goes to the workload that kompose
made of the service, or into a patch for a Deployment of the service's name. Source: the Compose
specification, `services.NAME.runtime` and `isolation`.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from moorage.migrate.rules.changes import (
    Insert,
    Outcome,
    Severity,
    below,
    note,
    refused,
    template_path,
)
from moorage.migrate.rules.handler_files import table, text, texts

# Layers of a Compose project: override files, `include` and `extends`.
#
# Each file is completed first (what it includes, then what its services extend) and then laid over
# the files before it. Sources: the Compose specification, "Include", "Extends", "Merge"; the order
# is that of compose-go's loader.

FILES = ("compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml")
"""Names of a project's file, the first that exists is read."""

OVERRIDES = (
    "compose.override.yml", "compose.override.yaml",
    "docker-compose.override.yml", "docker-compose.override.yaml",
)  # fmt: skip
"""Names of the file that is laid over a project's file, the first that exists is read."""

_MERGED_KEYS = ("runtime", "isolation", "deploy")
_ELSEWHERE = re.compile(r"\$|://|^git@|^oci:|^[\w.-]+\.git\b")


class Project(msgspec.Struct, frozen=True):
    """The services of a project, by name; `notes` say what was not read."""

    name: str
    services: dict[str, dict[str, Any]]
    notes: list[tuple[Severity, str]]


def compose_references(path: str, document: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the absolute paths that a Compose file is read with."""
    directory = posixpath.dirname(path)
    found = [name for names in _includes(document) for name in names]
    for service in table(document.get("services")).values():
        _, file = _extended(table(service))
        found += [file] if file else []
    paths = [_join(directory, name) for name in found if not _ELSEWHERE.search(name)]
    if posixpath.basename(path) in FILES:
        paths += [_join(directory, name) for name in OVERRIDES]
    return tuple(dict.fromkeys(paths))


def compose_projects(files: Mapping[str, dict[str, Any]]) -> Iterator[Project]:
    """Yield the projects of Compose files, given by absolute path.

    A file that another one includes, extends or is overridden by is no project of its own.
    """
    parts = {
        reference
        for path, document in files.items()
        for reference in compose_references(path, document)
        if reference != path
    }
    left = dict.fromkeys(files)
    # Files that lead to one another in a circle have no first one: the first given is taken.
    for path in (*(path for path in files if path not in parts), *files):
        if path in left:
            loading = _Loading(files)
            yield Project(path, loading.project(path), loading.notes)
            for read in (path, *loading.read):
                left.pop(read, None)


class _Loading:
    def __init__(self, files: Mapping[str, dict[str, Any]]) -> None:
        self._files = files
        self.notes: list[tuple[Severity, str]] = []
        self.read: set[str] = set()

    def project(self, path: str) -> dict[str, dict[str, Any]]:
        """Return the services of a file with its override file."""
        directory, name = posixpath.split(path)
        layers = [path]
        if name in FILES:
            overrides = (_join(directory, override) for override in OVERRIDES)
            layers += [override for override in overrides if override in self._files][:1]
        return self._laid(layers, ())

    def _laid(self, paths: Sequence[str], including: tuple[str, ...]) -> dict[str, dict[str, Any]]:
        services: dict[str, dict[str, Any]] = {}
        for path in paths:
            for name, service in self._completed(path, including).items():
                services[name] = _over(services.get(name, {}), service)
        return services

    def _completed(self, path: str, including: tuple[str, ...]) -> dict[str, dict[str, Any]]:
        document = self._files[path]
        self.read.add(path)
        services: dict[str, dict[str, Any]] = {}
        for names in _includes(document):
            paths = [_join(posixpath.dirname(path), name) for name in names]
            for name, included in zip(names, paths, strict=True):
                if included in including or included == path:
                    self.notes.append(refused(f"its include {name} leads back to it"))
                elif included not in self._files:
                    self._unread(f"its include {name}")
            known = [one for one in paths if one in self._files and one not in (*including, path)]
            services |= self._laid(known, (*including, path))
        for name in table(document.get("services")):
            services[name] = self._service(path, name, ())
        return services

    def _service(
        self, path: str, name: str, extending: tuple[tuple[str, str], ...]
    ) -> dict[str, Any]:
        service = table(table(self._files[path].get("services")).get(name))
        base, file = _extended(service)
        if not base:
            return service
        origin = _join(posixpath.dirname(path), file) if file else path
        if (path, name) in extending:
            self.notes.append(refused(f"service {name}: it extends itself"))
            return service
        if origin not in self._files:
            self._unread(f"service {name}: the file {file} that it extends")
            return service
        if base not in table(self._files[origin].get("services")):
            where = f" of {file}" if file else ""
            self.notes.append(refused(f"service {name}: it extends {base}{where}, which is absent"))
            return service
        self.read.add(origin)
        return _over(self._service(origin, base, (*extending, (path, name))), service)

    def _unread(self, what: str) -> None:
        sentence = refused(
            f"{what} is not read: it does not exist below the files that were named; name it too, "
            "or migrate the output of `docker compose config`"
        )
        if sentence not in self.notes:
            self.notes.append(sentence)


def _over(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a service that matter here, `above` over `below`."""
    return {
        key: value
        for key in _MERGED_KEYS
        if (value := above[key] if above.get(key) is not None else below.get(key)) is not None
    }


def _includes(document: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield the files of each include; those after the first are laid over it."""
    entries = document.get("include")
    for entry in entries if isinstance(entries, list) else ():
        path = table(entry).get("path", entry)
        if names := (path,) if isinstance(path, str) else texts(path):
            yield names


def _extended(service: Mapping[str, Any]) -> tuple[str, str]:
    """Return the service that one extends and its file, both empty if there is none."""
    extends = service.get("extends")
    if isinstance(extends, str):
        return extends, ""
    return text(table(extends).get("service")), text(table(extends).get("file"))


def _join(directory: str, name: str) -> str:
    return posixpath.normpath(posixpath.join(directory, name))


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
