"""Regular expressions of custom resource definitions.

Authors of definitions write them for Go's engine, and anyone who may create one chooses the
pattern and the text: RE2 has Go's syntax and takes time linear in the text, where Python's engine
can be made to run for years (docs/decisions/073-re2.md).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

_MEMORY_BYTES = 1 << 20


class PatternError(ValueError):
    """A pattern does not compile; the text says why."""


def compile_pattern(pattern: str) -> Callable[[str], bool]:
    """Return whether a text contains a match, as a function. Raises PatternError."""
    # Imported with the first pattern: most servers never have one.
    import re2

    try:
        compiled = re2.compile(pattern, _options())
    except re2.error as error:
        why = error.args[0] if error.args else ""
        text = why.decode(errors="replace") if isinstance(why, bytes) else str(why)
        raise PatternError(text) from error
    return lambda text: compiled.search(text) is not None


@lru_cache(maxsize=1)
def _options() -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY_BYTES
    return options
