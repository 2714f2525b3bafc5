"""States of a node's handlers, as far as probes have found them."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from moorage.api.runtime_profiles import RuntimeProgram
from moorage.engine.handlers.runtimes import KNOWN_RUNTIMES, Runtime
from moorage.runtimes.probing.cache import ProbedHandler


class Working(enum.Enum):
    """Whether a handler works. PENDING: it has not been probed yet."""

    PENDING = "pending"
    YES = "yes"
    NO = "no"


class KnownHandler(msgspec.Struct, frozen=True, kw_only=True):
    """A handler that an engine lists.

    `definition` is what defines it, without its name; `programs` are the files that it runs, and
    its shim's configuration. `start_deadline_s` is how long its first container may take, 0 for the
    usual time. `is_default` is of the handler that pods without a class get. `file` is its file,
    for people.
    """

    name: str
    definition: str = ""
    programs: tuple[Path, ...] = ()
    program: RuntimeProgram = RuntimeProgram()
    file: str = ""
    is_default: bool = False
    start_deadline_s: float = 0.0


class HandlerState(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a handler. `reason` and `remedy` are of one that does not work."""

    handler: KnownHandler
    engine: str = ""
    fingerprint: str = ""
    digest: str = ""
    working: Working = Working.PENDING
    reason: str = ""
    remedy: str = ""
    probed: ProbedHandler | None = None

    @property
    def is_working(self) -> bool:
        return self.working is Working.YES

    @property
    def lacks_features(self) -> bool:
        """Whether the handler works and its features were not probed yet."""
        return self.is_working and not (self.probed and self.probed.features)


def same_handlers(
    states: Mapping[str, HandlerState], runtimes: Iterable[Runtime] = KNOWN_RUNTIMES
) -> dict[str, str]:
    """Return which handlers are another one under a second name, as `runsc` of gVisor is `gvisor`.

    They are names of one known runtime with one fingerprint: a handler whose file says something
    else than the other's is a handler of its own, and so is a copy under a name of one's own.
    """
    same: dict[str, str] = {}
    for runtime in runtimes:
        first: dict[str, str] = {}
        for name in runtime.handlers_by_preference:
            state = states.get(name)
            if state is None or not state.fingerprint:
                continue
            preferred = first.setdefault(state.fingerprint, name)
            if preferred != name:
                same[name] = preferred
    return same
