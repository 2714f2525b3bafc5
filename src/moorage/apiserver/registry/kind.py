"""Kind declarations: data, not a class hierarchy.

A kind declares its served versions, types, validation rules and table columns; one generic path
(`registry.objects`) does everything else. A new kind is one declaration in
`apiserver/registry/kinds/`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

import msgspec

from moorage.api import names
from moorage.api.errors import FieldError
from moorage.apiserver.registry.expressions import Expressions

if TYPE_CHECKING:
    from moorage.apiserver.registry.stored import Stored

P = ParamSpec("P")
R = TypeVar("R")

Obj = dict[str, Any]
"""An object in canonical form (`registry.schema.normalize`), in its kind's storage version."""

Convert = Callable[[Obj], Obj]

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
STATUS_VERBS = ("get", "patch", "update")
PROXY_VERBS = ("create", "delete", "get", "patch", "update")


@dataclass(frozen=True, slots=True)
class Served:
    """One served group-version of a kind. The first of a kind is its storage version.

    `to_storage` and `from_storage` convert objects; None where only the apiVersion differs.
    `field_aliases` maps this version's field labels to the stored one's. `warning` is sent with
    every response. `is_served`: whether requests may name the version; a definition can turn one
    off that stored objects still have. `is_remote`: the conversions wait for a webhook and are
    called in a thread.
    """

    group: str
    version: str
    type: str
    to_storage: Convert | None = None
    from_storage: Convert | None = None
    field_aliases: Mapping[str, str] = field(default_factory=dict)
    warning: str = ""
    is_served: bool = True
    is_remote: bool = False
    api_version: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        api_version = f"{self.group}/{self.version}" if self.group else self.version
        object.__setattr__(self, "api_version", api_version)


class SelectableField(msgspec.Struct, frozen=True):
    """A field for field selectors: its label and the path of its value.

    An absent value counts as `default`; if the value is empty, the path `fallback` is read.
    """

    label: str
    path: tuple[str, ...]
    default: str = ""
    fallback: tuple[str, ...] = ()


class Column(msgspec.Struct, frozen=True):
    """One column of a Table. `priority` 1 shows with `-o wide` only.

    `documented_by` is the API field whose documentation is the description, by full name
    (`io.k8s.api.core.v1.PodStatus.podIP`).
    """

    name: str
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0
    documented_by: str = ""


class Printer(msgspec.Struct, frozen=True):
    """Table representation of a kind.

    `cells(obj, now)` returns one value per column; `conditions` the row's own conditions, if any.
    """

    columns: tuple[Column, ...]
    cells: Callable[[Obj, float], list[Any]]
    conditions: Callable[[Obj], list[Obj]] | None = None


class Subresource(msgspec.Struct, frozen=True, kw_only=True):
    """A part of an object with its own path. Group, version and kind are those of its body."""

    verbs: tuple[str, ...]
    group: str = ""
    version: str = ""
    kind: str = ""
    type: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalePaths:
    """Where in an object its `/scale` finds the replicas wanted, those observed, and the selector.

    The value at `selector` is a label selector, or its text; without one the path is empty.
    """

    spec_replicas: tuple[str, ...] = ("spec", "replicas")
    status_replicas: tuple[str, ...] = ("status", "replicas")
    selector: tuple[str, ...] = ("spec", "selector")


def _nothing(*_: Any) -> None:
    return None


def _is_not_held(_: Obj) -> bool:
    return False


def _no_errors(*_: Any) -> list[FieldError]:
    return []


def _no_warnings(*_: Any) -> list[str]:
    return []


class PartRules(msgspec.Struct, frozen=True):
    """The rules of an update through a subresource, analogous to those of the full object.

    `raises_generation`: whether a spec change increments the generation. `stamp(new, old, now)`:
    set times that the server writes, after preparation.
    """

    prepare: Callable[[Obj, Obj], None] = _nothing
    validate: Callable[[Obj, Obj], list[FieldError]] = _no_errors
    raises_generation: bool = True
    expressions: Expressions | None = None
    stamp: Callable[[Obj, Obj, str], None] = _nothing


class Strategy(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of a kind. Every function takes canonical objects and no other input.

    `default(obj)`: set the API defaults, at decoding. `prepare_create(obj)`,
    `prepare_update(new, old)`: reset fields that users may not write. `validate(obj)`,
    `validate_update(new, old)`: return the errors. `parts`: the same for subresources, by name.
    `warn(new, old or None)`: texts for the `Warning` header. `spec_of(obj)`: the part whose
    change increments the generation. `expressions(evaluator, new, old or None)`: the errors of CEL
    rules, evaluated after validation.
    """

    default: Callable[[Obj], None] = _nothing
    prepare_create: Callable[[Obj], None] = _nothing
    prepare_update: Callable[[Obj, Obj], None] = _nothing
    validate: Callable[[Obj], list[FieldError]] = _no_errors
    validate_update: Callable[[Obj, Obj], list[FieldError]] = _no_errors
    expressions: Expressions | None = None
    parts: Mapping[str, PartRules] = msgspec.field(default_factory=dict)
    warn: Callable[[Obj, Obj | None], list[str]] = _no_warnings
    name_errors: Callable[[str], list[str]] = names.dns_subdomain_errors
    spec_of: Callable[[Obj], Any] | None = None
    counts_creation: bool = True
    """Whether the generation of a new object is 1; otherwise its first change makes it 1."""
    may_create_on_update: bool = False
    needs_revision_on_update: bool = False
    returns_deleted: bool = False
    default_propagation: str = "Background"
    grace_seconds: Callable[[Obj, int | None], int] | None = None
    """Grace period in seconds for kinds with graceful deletion, given the requested one."""
    mark_deleted: Callable[[Obj], None] = _nothing
    """Applies further changes to an object when its deletion begins."""
    is_held: Callable[[Obj], bool] = _is_not_held
    """Returns whether anything besides `metadata.finalizers` blocks the removal of an object."""


class View(Protocol):
    """How the stored objects of a custom resource are seen in one of its versions, and written.

    `is_remote`: seeing may wait for a webhook.
    """

    @property
    def is_remote(self) -> bool: ...

    @property
    def mark(self) -> str:
        """Return the mark of objects that fit the version."""

    def fits(self, item: Stored) -> bool:
        """Return whether an object is seen as it is stored."""

    def is_current(self, item: Stored) -> bool:
        """Return whether an object is stored as it would be written now."""

    def see_now(self, item: Stored) -> Stored:
        """Return an object in the version. Only where `is_remote` is false, or if it fits."""

    async def see(self, items: Sequence[Stored]) -> list[Stored]:
        """Return objects in the version. Raises StatusError if one cannot be converted."""

    async def value_of(self, obj: Obj) -> bytes:
        """Return the bytes to store for an object of the version. Raises as `see`."""

    async def run(self, step: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a step that may call the conversions of `Kind.served`, where it may wait."""

    def kept(self, item: Stored) -> Kind | None:
        """Return the kind in the version in which an object is stored, which writes it in that.

        None for a version that is no longer in the definition. For work that must go on when
        objects cannot be converted.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of object. Store keys of its objects start with `table`.

    A custom resource has a kind for each version, with `view`, the version itself the first of
    `served`, and `stored_version` the one that new objects are stored in.
    """

    name: str
    plural: str
    served: tuple[Served, ...]
    is_namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    strategy: Strategy = field(default_factory=Strategy)
    printer: Printer | None = None
    selectable: tuple[SelectableField, ...] = ()
    subresources: Mapping[str, Subresource] = field(default_factory=dict)
    scale_paths: ScalePaths = ScalePaths()
    is_stored: bool = True
    """False for reviews and metrics, which are answered but never stored."""
    is_custom: bool = False
    """True for custom resources: items of their lists carry kind and apiVersion."""
    singular_name: str = ""
    list_name: str = ""
    """Names that a custom resource definition chose; by default from `name`."""
    view: View | None = None
    stored_version: str = ""
    refuses_new: str = ""
    """Why no object may be created, empty if it may."""
    group: str = field(init=False, repr=False, compare=False)
    resource: str = field(init=False, repr=False, compare=False)
    """The qualified plural in errors and RBAC: `pods`, `runtimeclasses.node.k8s.io`."""
    table: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Hot path: each request needs these several times.
        group = self.served[0].group
        resource = f"{self.plural}.{group}" if group else self.plural
        for name, value in (("group", group), ("resource", resource), ("table", resource)):
            object.__setattr__(self, name, value)

    @property
    def storage(self) -> Served:
        return self.served[0]

    @property
    def singular(self) -> str:
        return self.singular_name or self.name.lower()

    @property
    def list_kind(self) -> str:
        return self.list_name or f"{self.name}List"

    @property
    def has_status(self) -> bool:
        return "status" in self.subresources

    def key(self, namespace: str, name: str) -> str:
        """Return the store key of an object."""
        if self.is_namespaced:
            return f"{self.table}/{namespace}/{name}"
        return f"{self.table}/{name}"

    def prefix(self, namespace: str) -> str:
        """Return the store prefix of the objects in a namespace, or of all for `""`."""
        if self.is_namespaced and namespace:
            return f"{self.table}/{namespace}/"
        return f"{self.table}/"


def status_subresource() -> dict[str, Subresource]:
    """Return the standard `/status` subresource."""
    return {"status": Subresource(verbs=STATUS_VERBS)}


def scale_subresource() -> dict[str, Subresource]:
    """Return the `/scale` subresource of workloads."""
    return {
        "scale": Subresource(
            verbs=STATUS_VERBS,
            group="autoscaling",
            version="v1",
            kind="Scale",
            type="io.k8s.api.autoscaling.v1.Scale",
        )
    }


def proxy_subresource(options_kind: str) -> dict[str, Subresource]:
    """Return the `/proxy` subresource, whose options have that kind."""
    return {"proxy": Subresource(verbs=PROXY_VERBS, kind=options_kind)}


def get_spec(obj: Obj) -> object:
    """Return the specification: what the generation of most kinds counts."""
    return obj.get("spec")


def by_resource(kinds: Sequence[Kind]) -> dict[tuple[str, str, str], tuple[Kind, Served]]:
    """Index kinds: (group, version, plural) → the kind and that version."""
    return {
        (served.group, served.version, kind.plural): (kind, served)
        for kind in kinds
        for served in kind.served
        if served.is_served
    }
