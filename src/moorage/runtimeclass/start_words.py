"""Words for start phases: durations as people read them, no finer than they are known."""

from __future__ import annotations

from moorage.runtimeclass.start_phases import CONDITION_RESOLUTION_MS, OTHER, Phase, StartPhases

_LEAST_OTHER_MS = 1.0
_LONG_MS = 600_000.0


def duration_words(ms: float) -> str:
    """Return a duration of milliseconds: `0.4 ms`, `63 ms`, `1.24 s`, `95 s`, `12 min`."""
    if 0 < ms < 10:
        return f"{ms:.1f} ms"
    if ms < 1000:
        return f"{ms:.0f} ms"
    if ms < 10_000:
        return f"{ms / 1000:.2f} s"
    return f"{ms / 1000:.0f} s" if ms < _LONG_MS else f"{ms / 60_000:.0f} min"


def phase_words(phases: StartPhases) -> str:
    """Return the phases in one line; those known to a second are shown as `within 1 s`."""
    shown = [
        f"{phase.name} {length_words(phase)}" for phase in phases.phases if not _is_nothing(phase)
    ]
    state = "" if phases.is_over else ", still starting"
    on_node = phases.on_node_ms
    if on_node is not None:
        total = f"{duration_words(on_node)} on the node"
    else:
        total = f"{second_words(phases.total_ms)} in all"
    return f"{total}{state}: {' · '.join(shown)}"


def length_words(phase: Phase) -> str:
    """Return how long a phase took, no finer than it is known."""
    return known_words(phase.ms, phase.resolution_ms)


def known_words(ms: float, resolution_ms: float) -> str:
    """Return a duration no finer than it is known."""
    return second_words(ms) if resolution_ms >= CONDITION_RESOLUTION_MS else duration_words(ms)


def second_words(ms: float) -> str:
    """Return a difference of two whole seconds: the real one is less than a second off."""
    return "within 1 s" if ms < CONDITION_RESOLUTION_MS else f"{ms / 1000:.0f} s (± 1 s)"


def _is_nothing(phase: Phase) -> bool:
    return phase.name == OTHER and phase.ms < _LEAST_OTHER_MS
