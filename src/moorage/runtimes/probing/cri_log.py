"""CRI log of a probe: its output, within a bound.

A line of the log is `TIME STREAM TAGS CONTENT`; one tagged `P` is continued by the next. Source:
CRI logging design.
"""

from __future__ import annotations

from pathlib import Path

from moorage.runtimes.probing.carrier import OUTPUT_LIMIT_BYTES

# Each line has a time stamp, a stream and a tag before its content.
_READ_LIMIT_BYTES = 4 * OUTPUT_LIMIT_BYTES
_PARTIAL = b"P"
_FIELDS = 3


def read_output(path: Path) -> str:
    """Return the output in a log, both streams in their order; what is no UTF-8 is replaced.

    Blocks. Empty without a log.
    """
    try:
        with path.open("rb") as log:
            content = log.read(_READ_LIMIT_BYTES)
    except FileNotFoundError:
        return ""
    return parse_output(content)


def parse_output(content: bytes) -> str:
    """Return the output in a log's content; a line in another format is left out."""
    output = bytearray()
    for line in content.splitlines(keepends=True):
        fields = line.split(b" ", _FIELDS)
        if len(fields) <= _FIELDS:
            continue
        is_partial = fields[2].partition(b":")[0] == _PARTIAL
        output += fields[3].removesuffix(b"\n") if is_partial else fields[3]
        if len(output) >= OUTPUT_LIMIT_BYTES:
            break
    return bytes(output[:OUTPUT_LIMIT_BYTES]).decode(errors="replace")
