"""Who asks, and how: what travels with a request through admission and the registry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from moorage.registry.kind import Kind, Obj, Served

SYSTEM_MASTERS = "system:masters"
AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
ANONYMOUS = "system:anonymous"


@dataclass(frozen=True, slots=True)
class User:
    """An authenticated identity, as TokenReview and audit show it."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Request:
    """One write, with its options. `warnings` collects sentences for the answer's headers."""

    user: User
    user_agent: str = ""
    is_dry_run: bool = False
    field_manager: str = ""
    field_validation: str = "Warn"
    warnings: list[str] = field(default_factory=list)

    @property
    def manager(self) -> str:
        """The field manager's name: given, or the User-Agent up to its first slash."""
        return self.field_manager or self.user_agent.partition("/")[0] or "unknown"

    def warn(self, sentence: str) -> None:
        if sentence not in self.warnings:
            self.warnings.append(sentence)


@dataclass(slots=True, kw_only=True)
class Attributes:
    """What admission sees of a write. Plugins that mutate change `obj` in place.

    `operation` is CREATE, UPDATE, DELETE or CONNECT; `obj` is None for DELETE, `old` for CREATE.
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
