"""Write requests: user and options, as passed through admission and the registry."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from moorage.apiserver.registry.kind import Kind, Obj, Served, Subresource

SYSTEM_MASTERS = "system:masters"
AUTHENTICATED = "system:authenticated"
MANAGER_BYTES = 128
"""Maximum length of a field manager's name."""

# Clients limit the size of response headers. Source: apiserver's warning recorder, which truncates
# items once the total exceeds 4 KiB.
_WARNINGS_CHARS = 4 * 1024
_WARNING_CHARS = 2 * 1024

_ANNOTATIONS = 256
_ANNOTATION_CHARS = 10 * 1024

UNAUTHENTICATED = "system:unauthenticated"
ANONYMOUS = "system:anonymous"


class User(msgspec.Struct, frozen=True):
    """An authenticated identity, as in TokenReview and audit."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Request:
    """One write, with its options. `warnings` collects texts for the response headers.

    `is_large`: body or object are processed on the worker's thread because of their size. `is_own`:
    the server writes of itself, or as a step of a request that was admitted; webhooks and policies
    see no such write. `field_validation` is as the client gave it; empty means `Warn`.
    `annotations` are those of the request's audit event, by key, as admission sets them: the first
    value of a key stays. `webhooks_until` is the loop's time at which calls of its webhooks end,
    set by the first of them.
    """

    user: User
    user_agent: str = ""
    is_dry_run: bool = False
    field_manager: str = ""
    field_validation: str = ""
    is_large: bool = False
    is_own: bool = False
    warnings: list[str] = field(default_factory=list)
    annotations: dict[str, str] = field(default_factory=dict)
    webhooks_until: float | None = None
    _warned_chars: int = field(default=0, init=False)

    @property
    def manager(self) -> str:
        """The field manager: the `fieldManager` option, or the User-Agent up to its first slash."""
        return self.field_manager or _printable(self.user_agent.partition("/")[0]) or "unknown"

    def warn(self, sentence: str) -> None:
        """Add a warning, without duplicates, up to the size limit of the response headers."""
        if self._warned_chars < _WARNINGS_CHARS and sentence not in self.warnings:
            self.warnings.append(sentence[:_WARNING_CHARS])
            self._warned_chars += len(self.warnings[-1])

    def annotate(self, key: str, value: str) -> None:
        """Set an annotation of the request's audit event, up to the limits for all of them."""
        if key not in self.annotations and len(self.annotations) < _ANNOTATIONS:
            self.annotations[key] = value[:_ANNOTATION_CHARS]


def _printable(text: str) -> str:
    """Return the text without unprintable characters, up to 128 bytes.

    Source: apiserver `prefixFromUserAgent`.
    """
    if text.isascii() and text.isprintable() and len(text) <= MANAGER_BYTES:
        return text
    kept = "".join(char for char in text[: 8 * MANAGER_BYTES] if char.isprintable())
    return kept.encode()[:MANAGER_BYTES].decode(errors="ignore")


def _same(obj: Obj) -> Obj:
    return obj


def _replaced(obj: Obj, form: Obj) -> Obj:
    del obj
    return form


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """The form of a write's object where it is not of the resource's kind: Eviction, Scale.

    `show` returns the form of an object, `put` the object after a change of its form. `type` is
    that of the form, empty where it has no type of the schema.
    """

    kind: str
    group: str = ""
    version: str = "v1"
    type: str = ""
    show: Callable[[Obj], Obj] = _same
    put: Callable[[Obj, Obj], Obj] = _replaced

    @classmethod
    def of(cls, subresource: Subresource) -> Form:
        """Return the form that the bodies or options of a subresource have."""
        return cls(
            kind=subresource.kind,
            group=subresource.group,
            version=subresource.version or "v1",
            type=subresource.type,
        )

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


class Turn(msgspec.Struct):
    """What one plugin has to call once more: its policies, or its webhooks.

    `again` are those that are called in the second run, `candidates` those that will be if the
    object changes after their call. `last` is what the plugin left of the object.
    """

    candidates: set[str] = msgspec.field(default_factory=set)
    again: set[str] = msgspec.field(default_factory=set)
    last: Obj | None = None

    def call_candidates_again(self) -> None:
        """Note that the object changed after the candidates were called."""
        self.again |= self.candidates
        self.candidates = set()


class Reinvocation(msgspec.Struct):
    """The second run of the mutating plugins, which a webhook's change makes necessary.

    Mutating policies and webhooks each have a `Turn`. Source: apiserver
    `admission.ReinvocationContext`.
    """

    is_needed: bool = False
    is_second: bool = False
    turns: dict[str, Turn] = msgspec.field(default_factory=lambda: defaultdict(Turn))


class Attributes(msgspec.Struct, kw_only=True):
    """A write as admission plugins see it. Mutating plugins change `obj` in place.

    `operation` is CREATE, UPDATE, DELETE or CONNECT; `obj` is None for DELETE, `old` for CREATE.
    `form` is there where webhooks and policies see another object. `options` are those of the
    operation, beside the ones that every write has. `endings` are called when the write is stored
    or refused. `reinvocation` is there once mutating policies or webhooks selected the write.
    """

    request: Request
    operation: str
    kind: Kind
    served: Served
    namespace: str
    name: str
    obj: Obj | None
    old: Obj | None = None
    subresource: str = ""
    form: Form | None = None
    options: Mapping[str, Any] = msgspec.field(default_factory=dict)
    reinvocation: Reinvocation | None = None
    endings: list[Callable[[], None]] = msgspec.field(default_factory=list)

    def end(self) -> None:
        """Call `endings`: the write is stored or refused."""
        for ending in self.endings:
            ending()
