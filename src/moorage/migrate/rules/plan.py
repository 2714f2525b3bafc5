"""Migration plan: all changes to a set of texts, decided together and before any is written.

Handlers, classes and bindings of one text matter to the others, so facts are gathered over all of
them first. The plan of what a plan makes is empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from moorage.migrate.rules import alpha_classes, compose, gatekeeper, kyverno, pod_security_policies
from moorage.migrate.rules.changes import (
    Finding,
    Operation,
    Outcome,
    Path,
    RenameError,
    RenameTable,
    Severity,
    applied,
    below,
    rename_table,
)
from moorage.migrate.rules.compose import compose_projects
from moorage.migrate.rules.engine_handlers import EngineConfiguration, engine_of
from moorage.migrate.rules.formats import Format, Parsed, SkippedError, UnreadableError, parse
from moorage.migrate.rules.handler_files import class_object, handler_file, table, text
from moorage.migrate.rules.layers import EngineGroup, Layer, engine_groups
from moorage.migrate.rules.outputs import CLASSES, HANDLERS, PATCHES, POLICIES, Outputs
from moorage.migrate.rules.pod_security_policies import (
    DEFAULT_CLASSES,
    Meaning,
    migrate_annotations,
)
from moorage.migrate.rules.policies import isolation_of, valid_only
from moorage.migrate.rules.toml_edits import edited_toml
from moorage.migrate.rules.yaml_edits import CannotEditError, edited

_SHOWN = 80
_CEL = "its CEL is not read, and no RuntimePolicy is made of it: it stays in force as it is"

MOST_RUNTIMES = 1000
"""Limit on the runtimes of one engine: each becomes a file and a class."""


class Source(msgspec.Struct, frozen=True):
    """A text to migrate. `name` is that of its file; `is_named` says that the user named it.

    `path` is the file's absolute path, by which other files refer to it.
    """

    name: str
    text: str
    is_named: bool = True
    path: str = ""


class Options(msgspec.Struct, frozen=True):
    """Choices of the user.

    `classes` are the classes for what annotations meant, `renames` the new names of handlers;
    `default_handler` is for classes that name none.
    """

    classes: Mapping[Meaning, str] = {}
    renames: Mapping[str, str] = {}
    default_handler: str = ""

    def class_names(self) -> dict[Meaning, str]:
        """Return the class for each meaning."""
        return {
            meaning: self.classes.get(meaning, name)
            for meaning, (name, _) in DEFAULT_CLASSES.items()
        }


class Plan(msgspec.Struct, frozen=True):
    """`changed` are the new texts of sources, `outputs` those of files in the output directory."""

    changed: Mapping[str, str]
    outputs: Mapping[str, str]
    findings: tuple[Finding, ...]

    @property
    def is_refused(self) -> bool:
        """Return whether something stays as it is until a person decides."""
        return any(finding.severity is Severity.REFUSED for finding in self.findings)


class _Read(msgspec.Struct, frozen=True):
    source: Source
    parsed: Parsed


def make_plan(sources: Sequence[Source], existing: Mapping[str, str], options: Options) -> Plan:
    """Return the plan for texts, with what the output directory has already by name.

    Raises RenameError for renames of the user's that cannot be, OutputError for an output file of
    an earlier run that cannot be read.
    """
    return _Planner(Outputs(existing), options).plan(sources)


class _Planner:
    """Facts over all sources, and what has been decided."""

    def __init__(self, outputs: Outputs, options: Options) -> None:
        self._outputs = outputs
        self._options = options
        self._class_names = options.class_names()
        self._findings: dict[Finding, None] = {}
        self._changed: dict[str, str] = {}
        self._objects: list[dict[str, Any]] = []
        self._identities: set[tuple[str, str, str, str]] = set()
        self._handlers: dict[str, str] = {}
        """Classes by name, each with its handler's former name."""
        self._renames = RenameTable()
        self._default = ""
        self._services: dict[str, str] = {}
        self._labelled: set[str] = set()
        self._meanings: set[Meaning] = set()

    def plan(self, sources: Sequence[Source]) -> Plan:
        texts = [read for source in sources if (read := self._read(source)) is not None]
        for item in self._outputs.objects():
            self._know(item)
        for read in texts:
            if read.parsed.format is Format.MANIFESTS:
                for _, _, item in _objects(read.parsed.documents):
                    self._know(item)
        engines = {
            read.source.name: engine
            for read in texts
            if (engine := engine_of(read.parsed.format, read.parsed.documents)) is not None
        }
        groups = list(engine_groups([_layer(read) for read in texts]))
        self._gather(texts, groups)
        for read in texts:
            if read.parsed.format is Format.MANIFESTS:
                self._migrate_manifests(read)
        for group in groups:
            self._migrate_engine(group)
        for read in texts:
            if read.source.name in engines:
                self._rename_in_place(read, engines[read.source.name])
        self._add_services()
        self._add_classes_of_annotations()
        self._outputs.add_renames(self._renames.changed)
        return Plan(self._changed, self._outputs.changed(), tuple(self._findings))

    # Facts.

    def _read(self, source: Source) -> _Read | None:
        try:
            parsed = parse(source.name, source.text)
        except UnreadableError as error:
            self._find(Severity.REFUSED, source.name, str(error))
            return None
        except SkippedError as error:
            self._find(Severity.SKIPPED, source.name, str(error))
            return None
        for sentence in parsed.unread:
            self._find(Severity.SKIPPED, source.name, sentence)
        if parsed.format is Format.OTHER:
            if source.is_named and source.text.strip():
                self._find(Severity.SKIPPED, source.name, "it has nothing that moor migrate knows")
            return None
        return _Read(source, parsed)

    def _gather(self, texts: Sequence[_Read], groups: Sequence[EngineGroup]) -> None:
        handlers = list(self._handlers.values())
        for group in groups:
            handlers += [handler.name for handler in group.handlers]
        files = {_path_of(read): read for read in texts if read.parsed.format is Format.COMPOSE}
        documents = {path: read.parsed.documents[0] for path, read in files.items()}
        origins: dict[str, str] = {}
        for project in compose_projects(documents):
            name = files[project.name].source.name
            runtimes, notes = compose.service_runtimes(project.services)
            for severity, sentence in (*project.notes, *notes):
                self._find(severity, name, sentence)
            for service, runtime in runtimes.items():
                if self._services.setdefault(service, runtime) != runtime:
                    self._find(
                        Severity.REFUSED,
                        name,
                        f"service {service}: its runtime is {runtime!r}, and "
                        f"{self._services[service]!r} in {origins[service]}; migrate one project "
                        "after the other, each with its own --out",
                    )
                origins.setdefault(service, name)
            handlers += runtimes.values()
        chosen = self._outputs.renames() | dict(self._options.renames)
        self._renames = rename_table(handlers, chosen)
        self._bindings = pod_security_policies.bindings_in(self._objects)
        self._templates = gatekeeper.class_templates(self._objects)
        self._known_classes = sorted(self._handlers)

    def _know(self, item: dict[str, Any]) -> None:
        self._objects.append(item)
        self._identities.add(_identity(item))
        if alpha_classes.is_class(item) and (name := _name_of(item)):
            self._handlers[name] = alpha_classes.handler_of(item)

    # Manifests.

    def _migrate_manifests(self, read: _Read) -> None:
        changes: dict[int, list[Operation]] = {}
        for index, path, item in _objects(read.parsed.documents):
            place = f"{read.source.name} ({_place_of(index, item)})"
            outcome = self._migrate_object(item)
            for severity, sentence in outcome.notes:
                self._find(severity, place, sentence)
            for created in outcome.objects:
                self._add_object(POLICIES, created)
            if outcome.operations:
                changes.setdefault(index, []).extend(below(path, outcome.operations))
        if not changes:
            return
        result = edited(read.source.text, changes)
        for index, reason in result.failures.items():
            place = f"{read.source.name} ({_place_of(index, read.parsed.documents[index])})"
            self._find(Severity.REFUSED, place, reason)
        if result.text != read.source.text:
            self._changed[read.source.name] = result.text

    def _migrate_object(self, item: dict[str, Any]) -> Outcome:
        if alpha_classes.is_class(item):
            return alpha_classes.migrate_class(item, self._renames, self._options.default_handler)
        if pod_security_policies.is_policy(item):
            return valid_only(pod_security_policies.migrate_policy(item, self._bindings))
        if kyverno.is_policy(item):
            return valid_only(kyverno.migrate_policy(item, self._known_classes))
        if gatekeeper.is_policy(item):
            return valid_only(gatekeeper.migrate_policy(item, self._templates, self._known_classes))
        if _is_admission_policy(item):
            return Outcome(notes=[(Severity.SKIPPED, _CEL)] if kyverno.mentions(item) else [])
        if text(item.get("kind")) == "CustomResourceDefinition":
            return alpha_classes.migrate_definition(item)
        return self._migrate_workload(item)

    def _migrate_workload(self, item: dict[str, Any]) -> Outcome:
        first = migrate_annotations(item, self._class_names)
        if first.meaning is not None:
            self._meanings.add(first.meaning)
        service = compose.service_of(item)
        if service not in self._services:
            return first.outcome
        self._labelled.add(service)
        try:
            class_name = self._class_of(self._services[service])
        except RenameError as error:
            return Outcome(notes=[*first.outcome.notes, (Severity.REFUSED, str(error))])
        operations = list(first.outcome.operations)
        second = compose.migrate_service(applied(item, operations), class_name)
        return Outcome(
            operations=[*operations, *second.operations],
            notes=[*first.outcome.notes, *second.notes],
        )

    # Engines and Compose files.

    def _migrate_engine(self, group: EngineGroup) -> None:
        self._findings |= dict.fromkeys(group.findings)
        if len(group.handlers) > MOST_RUNTIMES:
            self._find(Severity.REFUSED, group.name, f"it has more than {MOST_RUNTIMES} runtimes")
            return
        for handler in group.handlers:
            origins = group.origins.get(handler.name) or (group.name.rpartition("/")[2],)
            try:
                name = self._renames.new_name(handler.name)
            except RenameError as error:
                self._find(Severity.REFUSED, group.name, str(error))
                continue
            if handler.is_default and self._default not in ("", name):
                handler = msgspec.structs.replace(handler, is_default=False)
                self._note(group.name, f"handler {name}: the default stays {self._default}")
            elif handler.is_default:
                self._default = name
            if not self._outputs.add_handler(name, handler_file(handler, ", ".join(origins))):
                self._note(group.name, f"handler {name}: {HANDLERS}/{name}.toml is there and stays")
            if name not in map(self._new_handler, self._handlers.values()):
                self._add_class(name, name, handler.isolation)
            if handler.left_out:
                left_out = ", ".join(handler.left_out)
                self._note(
                    group.name,
                    f"handler {name}: a handler file has no counterpart for {left_out}",
                )

    def _rename_in_place(self, read: _Read, engine: EngineConfiguration) -> None:
        edits = engine.edits(self._renames.changed)
        if not edits:
            return
        source = read.source
        if read.parsed.is_template:
            self._find(Severity.REFUSED, source.name, "it is a template; rename by hand in it")
            return
        try:
            self._changed[source.name] = edited_toml(source.text, edits)
        except CannotEditError as error:
            self._find(Severity.REFUSED, source.name, str(error))

    def _note(self, place: str, sentence: str) -> None:
        self._find(Severity.NOTE, place, sentence)

    def _class_of(self, runtime: str) -> str:
        """Return the class for a handler by its former name. Raises RenameError."""
        handler = self._renames.new_name(runtime)
        names = [
            name for name, former in self._handlers.items() if self._new_handler(former) == handler
        ]
        return handler if handler in names or not names else min(names)

    def _new_handler(self, former: str) -> str:
        return self._renames.new_names.get(former, former)

    def _add_services(self) -> None:
        for service, runtime in sorted(self._services.items()):
            try:
                class_name = self._class_of(runtime)
            except RenameError as error:
                self._find(Severity.REFUSED, f"service {service}", str(error))
                continue
            if class_name not in self._handlers:
                self._add_class(class_name, class_name, isolation_of(class_name))
            if service not in self._labelled:
                self._add_object(PATCHES, compose.deployment_patch(service, class_name))

    def _add_classes_of_annotations(self) -> None:
        for meaning in sorted(self._meanings):
            name, handler = DEFAULT_CLASSES[meaning]
            if meaning not in self._options.classes:
                self._add_class(name, handler, isolation_of(handler))
                continue
            chosen = self._class_names[meaning]
            if chosen not in self._handlers:
                self._find(
                    Severity.NOTE,
                    f"--class {meaning}={chosen}",
                    f"no RuntimeClass {chosen!r} is among the files; the cluster must have it",
                )

    def _add_class(self, name: str, handler: str, isolation: str) -> None:
        self._add_object(CLASSES, class_object(name, handler, isolation))

    def _add_object(self, file: str, created: dict[str, Any]) -> None:
        """Add an object to an output file, unless one of its kind and name is known."""
        if _identity(created) in self._identities:
            return
        self._know(created)
        self._outputs.add_object(file, created)

    def _find(self, severity: Severity, place: str, sentence: str) -> None:
        self._findings[Finding(severity, place, sentence)] = None


def _path_of(read: _Read) -> str:
    return read.source.path or read.source.name


def _layer(read: _Read) -> Layer:
    return Layer(read.source.name, _path_of(read), read.parsed)


def _objects(documents: Sequence[Any]) -> Iterator[tuple[int, Path, dict[str, Any]]]:
    """Yield the objects of documents, those of lists one by one, with where they are."""
    for index, document in enumerate(documents):
        if not isinstance(document, dict):
            continue
        items = document.get("items")
        if text(document.get("kind")).endswith("List") and isinstance(items, list):
            yield from (
                (index, ("items", position), item)
                for position, item in enumerate(items)
                if isinstance(item, dict)
            )
        else:
            yield index, (), document


def _is_admission_policy(item: dict[str, Any]) -> bool:
    group = text(item.get("apiVersion")).partition("/")[0]
    return group == "admissionregistration.k8s.io" and text(item.get("kind")).endswith("Policy")


def _name_of(item: dict[str, Any]) -> str:
    return text(table(item.get("metadata")).get("name"))


def _identity(item: dict[str, Any]) -> tuple[str, str, str, str]:
    metadata = table(item.get("metadata"))
    group = text(item.get("apiVersion")).rpartition("/")[0]
    namespace = text(metadata.get("namespace"))
    return group, text(item.get("kind")), namespace, text(metadata.get("name"))


def _place_of(index: int, item: Any) -> str:
    """Return a phrase for an object in a text, safe to print."""
    kind, name = ("", "")
    if isinstance(item, dict):
        kind, name = text(item.get("kind")), _name_of(item)
    if not kind or not name:
        return f"document {index + 1}"
    shown = f"{kind}/{name}"[:_SHOWN]
    return shown if shown.isprintable() else f"document {index + 1}"
