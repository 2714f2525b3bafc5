"""Changes of documents: what migration does to a JSON value, before any text is edited.

A transformation returns operations on paths of a document. `applied` gives the document that they
make; `yaml_edits` performs the same operations on the text, and is held to that result.
"""

from __future__ import annotations

import copy
import enum
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from moorage.api.names import dns_label_errors
from moorage.runtimeclass.workloads import POD_PATHS

Path = tuple[str | int, ...]
"""Keys of maps and indices of lists, from the root of a document."""


class Replace(msgspec.Struct, frozen=True):
    """Give the scalar at a path another text."""

    path: Path
    value: str


class Insert(msgspec.Struct, frozen=True):
    """Put an entry with a text into the map at a path.

    It becomes the entry below the one of the key `after`, or the map's first.
    """

    path: Path
    key: str
    value: str
    after: str = ""


class Remove(msgspec.Struct, frozen=True):
    """Remove entries from the map at a path."""

    path: Path
    keys: tuple[str, ...]


class LiftSpec(msgspec.Struct, frozen=True):
    """Move what the `spec` of a v1alpha1 RuntimeClass holds up to the map at a path, its class.

    `runtimeHandler` becomes `handler`, with this value; without it, `handler` is new.
    """

    path: Path
    handler: str


Operation = Replace | Insert | Remove | LiftSpec


def applied(document: Any, operations: Sequence[Operation]) -> Any:
    """Return a copy of a document with the operations performed."""
    changed = copy.deepcopy(document)
    for operation in operations:
        _apply(changed, operation)
    return changed


def at(document: Any, path: Path) -> Any:
    """Return the value at a path, which must exist."""
    for step in path:
        document = document[step]
    return document


def _apply(document: Any, operation: Operation) -> None:
    match operation:
        case Replace(path, value):
            at(document, path[:-1])[path[-1]] = value
        case Insert(path=path, key=key, value=value):
            at(document, path)[key] = value
        case Remove(path, keys):
            for key in keys:
                del at(document, path)[key]
        case LiftSpec(path, handler):
            entries = at(document, path)
            spec = entries.pop("spec")
            spec.pop("runtimeHandler", None)
            entries |= spec
            entries["handler"] = handler


def below(path: Path, operations: Sequence[Operation]) -> list[Operation]:
    """Return the operations of a part of a document as operations of the document.

    `path` is the part's path.
    """
    return [
        msgspec.structs.replace(operation, path=(*path, *operation.path))
        for operation in operations
    ]


# Findings of a migration: what it left out, and what a person must decide.
#
# A text names the document and says why and what to do, as one line.


class Severity(enum.StrEnum):
    """How much a finding matters: `REFUSED` alone makes the command fail."""

    NOTE = "note"
    SKIPPED = "skipped"
    REFUSED = "refused"


class Finding(msgspec.Struct, frozen=True):
    """A sentence about a place: a file, and in it a document."""

    severity: Severity
    place: str
    text: str

    def __str__(self) -> str:
        return f"{self.place}: {self.severity}: {self.text}"


class Outcome(msgspec.Struct, frozen=True):
    """What a transformation gives for one document.

    `operations` change the document itself; `objects` are new documents; `notes` are the severity
    and text of each finding.
    """

    operations: Sequence[Operation] = ()
    objects: Sequence[dict[str, Any]] = ()
    notes: Sequence[tuple[Severity, str]] = ()


def note(text: str) -> tuple[Severity, str]:
    """Return a remark that needs no action before the migration goes on."""
    return Severity.NOTE, text


def refused(text: str) -> tuple[Severity, str]:
    """Return the reason why a document stays as it is until a person decides."""
    return Severity.REFUSED, text


# Rename table of handlers: from names that no RuntimeClass may have since beta to DNS labels.
#
# The CRD of 1.12 and 1.13 allowed dots, and an engine's tables allow any key. A handler is one
# name in classes and engine configurations, so one table is made for everything that is migrated
# together. Source: KEP-585 "RuntimeClass", validation of node.k8s.io/v1.

_SHIM = re.compile(r"io\.containerd\.(?P<name>[a-z0-9-]+)\.v[0-9]+")
_SEPARATORS = re.compile(r"[._\s/:]+")


class RenameError(ValueError):
    """A rename of the user's that cannot be carried out; the message says why."""


class RenameTable(msgspec.Struct, frozen=True):
    """New names of handlers.

    `collisions` has, for each handler whose proposed name another handler gets or has too, the old
    names of all of these.
    """

    new_names: Mapping[str, str] = {}
    collisions: Mapping[str, tuple[str, ...]] = {}

    def new_name(self, handler: str) -> str:
        """Return the name of a handler after the migration. Raises RenameError.

        It has none when two handlers would get the same name, or when no legal name was found.
        """
        if handler in self.collisions:
            names = " and ".join(repr(name) for name in self.collisions[handler])
            raise RenameError(
                f"the handlers {names} would share the name {self.new_names[handler]!r}; give "
                "each a name with --rename OLD=NEW, the same one if they are one handler"
            )
        name = self.new_names.get(handler, handler)
        if errors := dns_label_errors(name):
            raise RenameError(
                f"the handler {handler!r} has no legal name: {errors[0]}; give it one with "
                "--rename OLD=NEW"
            )
        return name

    @property
    def changed(self) -> dict[str, str]:
        """Return the handlers that get another, legal name, sorted by their old one."""
        return {
            old: new
            for old, new in sorted(self.new_names.items())
            if old != new and old not in self.collisions and not dns_label_errors(new)
        }


def propose(handler: str) -> str:
    """Return the proposed name: in lower case, with dashes for dots and the like.

    A containerd runtime type becomes the name of its shim. The proposal may be illegal, such as an
    empty one or one of more than 63 characters.
    """
    if not dns_label_errors(handler):
        return handler
    if match := _SHIM.fullmatch(handler):
        return match["name"]
    return _SEPARATORS.sub("-", handler).strip("-").lower()


def rename_table(handlers: Iterable[str], chosen: Mapping[str, str]) -> RenameTable:
    """Return the table for these handlers, of which the user chose the names of some.

    A chosen name may be one that another handler has: both are the same handler then. Raises
    RenameError for a chosen name that is illegal or is renamed itself.
    """
    for old, new in chosen.items():
        if errors := dns_label_errors(new):
            raise RenameError(f"--rename {old}={new}: {errors[0]}")
        if new in chosen and new != old:
            raise RenameError(f"--rename {old}={new}: {new!r} is renamed too; name the last name")
    new_names = {
        handler: chosen.get(handler) or propose(handler) for handler in handlers if handler
    }
    sharing: dict[str, list[str]] = {}
    for old, new in sorted(new_names.items()):
        sharing.setdefault(new, []).append(old)
    collisions = {
        old: tuple(sharing[new])
        for old, new in new_names.items()
        if old not in (new, *chosen) and len(sharing[new]) > 1
    }
    return RenameTable(new_names, collisions)


# Pod templates of workload kinds: where the pod's metadata and spec stand in an object.
#
# The built-in kinds are a table; any other object with a template at `spec.template` counts too, so
# that Argo's Rollouts or Knative's Services are migrated like Deployments.

_TEMPLATE: Path = ("spec", "template")


def template_path(document: dict[str, Any]) -> Path | None:
    """Return the path of a document's pod template, None if it has none with a spec."""
    kind = document.get("kind")
    if kind in ("Pod", "PodTemplate") and document.get("apiVersion") != "v1":
        return None
    path = POD_PATHS.get(kind, _TEMPLATE) if isinstance(kind, str) else _TEMPLATE
    template: Any = document
    for step in path:
        if not isinstance(template, dict):
            return None
        template = template.get(step)
    if not isinstance(template, dict):
        return None
    return path if isinstance(template.get("spec"), dict) else None
