"""Templates of the web page: HTML with every value escaped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jinja2

from moorage.apiserver.web_page.objects import MOST_PODS, NO_CLASS, shortened
from moorage.apiserver.web_page.views import MOST_NODES
from moorage.runtimeclass.features import STATE_WORDS
from moorage.runtimeclass.start_phases import duration_words, known_words, second_words


class Templates:
    """The compiled templates."""

    def __init__(self) -> None:
        self._environment = jinja2.Environment(
            loader=jinja2.PackageLoader("moorage.apiserver.web_page", "templates"),
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
            duration_words=duration_words,
            known_words=known_words,
            second_words=second_words,
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
