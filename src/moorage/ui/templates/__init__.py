"""Templates of the web page: HTML with every value escaped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jinja2

from moorage.runtimeclass.feature_findings import STATE_WORDS
from moorage.runtimeclass.start_phases import CONDITION_RESOLUTION_MS
from moorage.runtimeclass.start_words import second_words
from moorage.ui.objects import shortened
from moorage.ui.pod_tally import MOST_PODS, NO_CLASS
from moorage.ui.views import MOST_NODES


class Templates:
    """The compiled templates."""

    def __init__(self) -> None:
        self._environment = jinja2.Environment(
            loader=jinja2.PackageLoader("moorage.ui", "templates"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.globals.update(
            no_class=NO_CLASS,
            most_pods=MOST_PODS,
            states=STATE_WORDS,
            milliseconds=milliseconds,
            length=length,
        )
        self._environment.filters.update(named=named, shortened=shortened)

    def render(self, name: str, **values: Any) -> bytes:
        """Return a page in UTF-8; what is no valid text in a value is replaced."""
        text = self._environment.get_template(name).render(**values)
        return text.encode("utf-8", "replace")


def named(names: Sequence[str]) -> str:
    """Return names for people, the first of many and how many more."""
    more = len(names) - MOST_NODES
    return ", ".join(names[:MOST_NODES]) + (f" and {more} more" if more > 0 else "")


def milliseconds(ms: float) -> str:
    """Return a duration for people: `85 ms`, `1.3 s`, `12 min`."""
    if ms < 1000:
        return f"{ms:.0f} ms" if ms >= 10 or ms == 0 else f"{ms:.1f} ms"
    if ms < 120_000:
        return f"{ms / 1000:.1f} s"
    return f"{ms / 60_000:.0f} min"


def length(ms: float, resolution_ms: float) -> str:
    """Return a duration no finer than it is known."""
    if resolution_ms < CONDITION_RESOLUTION_MS:
        return milliseconds(ms)
    return second_words(ms)
