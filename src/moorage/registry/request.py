"""Write requests: user and options, as passed through admission and the registry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from moorage.registry.kind import Kind, Obj, Served

SYSTEM_MASTERS = "system:masters"
AUTHENTICATED = "system:authenticated"
MANAGER_BYTES = 128
"""Maximum length of a field manager's name."""

# Clients limit the size of response headers. Source: apiserver's warning recorder, which truncates
# items once the total exceeds 4 KiB.
_WARNINGS_CHARS = 4 * 1024
_WARNING_CHARS = 2 * 1024

UNAUTHENTICATED = "system:unauthenticated"
ANONYMOUS = "system:anonymous"


@dataclass(frozen=True, slots=True)
class User:
    """An authenticated identity, as in TokenReview and audit."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Request:
    """One write, with its options. `warnings` collects texts for the response headers.

    `is_large`: body or object are processed on the worker's thread because of their size. `is_own`:
    the server writes of itself, or as a step of a request that was admitted; webhooks and policies
    see no such write.
    """

    user: User
    user_agent: str = ""
    is_dry_run: bool = False
    field_manager: str = ""
    field_validation: str = "Warn"
    is_large: bool = False
    is_own: bool = False
    warnings: list[str] = field(default_factory=list)
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


def _printable(text: str) -> str:
    """Return the text without unprintable characters, up to 128 bytes.

    Source: apiserver `prefixFromUserAgent`.
    """
    if text.isascii() and text.isprintable() and len(text) <= MANAGER_BYTES:
        return text
    kept = "".join(char for char in text[: 8 * MANAGER_BYTES] if char.isprintable())
    return kept.encode()[:MANAGER_BYTES].decode(errors="ignore")


@dataclass(slots=True)
class Reinvocation:
    """The second run of the mutating plugins, which a webhook's change makes necessary.

    `again` are the webhooks that are then called once more, `candidates` those that will be if a
    later webhook changes the object. `last` is what the webhooks left. Source: apiserver
    `admission.ReinvocationContext`.
    """

    is_needed: bool = False
    is_second: bool = False
    candidates: set[str] = field(default_factory=set)
    again: set[str] = field(default_factory=set)
    last: Obj | None = None

    def call_candidates_again(self) -> None:
        """Note that the object changed after the candidates were called."""
        self.again |= self.candidates
        self.candidates = set()


@dataclass(slots=True, kw_only=True)
class Attributes:
    """A write as admission plugins see it. Mutating plugins change `obj` in place.

    `operation` is CREATE, UPDATE, DELETE or CONNECT; `obj` is None for DELETE, `old` for CREATE.
    `endings` are called when the write is stored or refused. `reinvocation` is there once mutating
    webhooks were called.
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
    reinvocation: Reinvocation | None = None
    endings: list[Callable[[], None]] = field(default_factory=list)

    def end(self) -> None:
        """Call `endings`: the write is stored or refused."""
        for ending in self.endings:
            ending()
