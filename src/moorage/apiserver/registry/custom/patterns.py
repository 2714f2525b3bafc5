"""Regular expressions of custom resource definitions.

Authors of definitions write them for Go's engine, and anyone who may create one chooses the
pattern and the text: RE2 has Go's syntax and takes time linear in the text, where Python's engine
can be made to run for years (docs/decisions/072-custom-resource-validation.md).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

_MEMORY_BYTES = 1 << 20


_GO_WORDS = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "trailing \\": "trailing backslash at end of expression",
    "no argument for repetition operator": "missing argument to repetition operator",
    "invalid repetition size": "invalid repeat count",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
}
"""Messages of RE2 in the words of Go's parser, where they differ."""


class PatternError(ValueError):
    """A pattern does not compile; the text says why, in the words of Go's parser."""


def compile_pattern(pattern: str) -> Callable[[str], bool]:
    """Return whether a text contains a match, as a function. Raises PatternError."""
    # Imported with the first pattern: most servers never have one.
    import re2

    try:
        compiled = re2.compile(pattern, _options())
    except re2.error as error:
        raise PatternError(_in_go_words(error)) from error
    return lambda text: compiled.search(text) is not None


def _in_go_words(error: Exception) -> str:
    why = error.args[0] if error.args else ""
    text = why.decode(errors="replace") if isinstance(why, bytes) else str(why)
    problem, _, part = text.partition(": ")
    return f"error parsing regexp: {_GO_WORDS.get(problem, problem)}: `{part}`"


@lru_cache(maxsize=1)
def _options() -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY_BYTES
    return options
