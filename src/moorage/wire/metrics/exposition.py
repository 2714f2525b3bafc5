"""Prometheus text exposition: metric families and their samples as lines.

Source: Prometheus text exposition format 0.0.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_HELP_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n"})
_LABEL_ESCAPES = _HELP_ESCAPES | str.maketrans({'"': '\\"'})

Labels = Iterable[tuple[str, str]]


def family_lines(name: str, help_: str, kind: str, samples: Iterable[str]) -> Iterator[str]:
    """Yield the lines of a metric family: its help, its type (`counter`, …) and its samples."""
    yield f"# HELP {name} {help_.translate(_HELP_ESCAPES)}"
    yield f"# TYPE {name} {kind}"
    yield from samples


def sample_line(name: str, labels: Labels, value: float) -> str:
    """Return the line of one sample.

    The value is the shortest text that reads back as the same number: byte counts and seconds of
    CPU need every digit, since rates are differences of them.
    """
    pairs = ",".join(f'{label}="{text.translate(_LABEL_ESCAPES)}"' for label, text in labels)
    braced = f"{{{pairs}}}" if pairs else ""
    return f"{name}{braced} {repr(float(value)).removesuffix('.0')}"


def exposition_text(lines: Iterable[str]) -> str:
    """Return the lines as a response body; the last one ends with a newline too."""
    return "\n".join(lines) + "\n"
