"""Handler catalogue: the handlers in force, from their files and the probes of their programs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from moorage.engine.handlers.availability import AVAILABLE, Verdict
from moorage.engine.handlers.definition import AdapterKind, HandlerDefinition
from moorage.engine.handlers.features import NO_FEATURES, HandlerFeatures
from moorage.engine.handlers.runtimes import KNOWN_RUNTIMES

_PREFERRED = tuple(
    name for runtime in KNOWN_RUNTIMES if runtime.can_be_default for name in runtime.handlers
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedHandler:
    """A handler with a file. `program` is None when its program is not installed."""

    definition: HandlerDefinition
    program: Path | None = None
    version: str = ""
    features: HandlerFeatures = NO_FEATURES
    verdict: Verdict = AVAILABLE

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def is_available(self) -> bool:
        return self.verdict.is_available


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """A problem with a handler file; `has_former` says that its previous version stays in force."""

    path: Path
    line: int
    problem: str
    remedy: str
    has_former: bool = False

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}" if self.line else str(self.path)
        suffix = "; its previous version stays in effect" if self.has_former else ""
        return f"{place}: {self.problem} ({self.remedy}){suffix}"


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All handlers by name, and the problems with their files. Compares by value."""

    handlers: Mapping[str, OfferedHandler] = field(default_factory=dict)
    complaints: tuple[Diagnostic, ...] = ()

    def __iter__(self) -> Iterator[OfferedHandler]:
        return iter(self.handlers.values())

    def find(self, name: str) -> OfferedHandler | None:
        """Return a handler by name, the default one for the empty name; None if absent.

        The handler may be unavailable: its `verdict` says why.
        """
        return self.handlers.get(name or self.default_name)

    @property
    def default_name(self) -> str:
        """Return the handler of pods without a RuntimeClass; empty when there is none.

        The order is: the handler whose file sets `default`, the first available one of the known
        runtimes that can be the default, the first available one with the OCI adapter.
        """
        return next(_defaults(self.handlers), "")


def _defaults(handlers: Mapping[str, OfferedHandler]) -> Iterator[str]:
    yield from (name for name, handler in handlers.items() if handler.definition.is_default)
    yield from (name for name in _PREFERRED if name in handlers and handlers[name].is_available)
    yield from (
        name
        for name, handler in handlers.items()
        if handler.is_available and handler.definition.adapter is AdapterKind.OCI
    )


def changed_names(old: Catalogue, new: Catalogue) -> tuple[str, ...]:
    """Return the names of handlers that were added, removed or changed, sorted."""
    names: Iterable[str] = {*old.handlers, *new.handlers}
    return tuple(sorted(name for name in names if old.handlers.get(name) != new.handlers.get(name)))
