"""Output of a probe program: sections of text by name, and results by name.

== /proc/version
Linux version …
== results
statx ffffffffffffffea
"""

from __future__ import annotations

import errno

import msgspec

_SECTION = "== "
_RESULTS = "results"
_TOP_BIT = 1 << 63
_SIGNAL_MASK = 0x7F


class ProgramOutput(msgspec.Struct, frozen=True):
    """What a program printed. A result is that of its system call, below 0 for an error number."""

    sections: dict[str, str] = {}
    results: dict[str, int] = {}

    def section(self, name: str) -> str:
        """Return the text of a section without space around it; empty if it was not printed."""
        return self.sections.get(name, "").strip()

    def status_value(self, key: str) -> str:
        """Return a value of /proc/self/status, such as `Seccomp`; empty if it is not there."""
        for line in self.sections.get("/proc/self/status", "").splitlines():
            name, _, value = line.partition(":")
            if name == key:
                return value.strip()
        return ""

    def signal_of(self, name: str) -> int:
        """Return the signal that ended a child; 0 if none did."""
        return self.results.get(f"{name}.end", 0) & _SIGNAL_MASK


def parse_output(text: str) -> ProgramOutput:
    """Parse a program's output. Lines in no known form are left out."""
    sections: dict[str, list[str]] = {}
    name = ""
    # A terminal ends lines with a carriage return too.
    for line in text.replace("\r\n", "\n").splitlines():
        if line.startswith(_SECTION):
            name = line.removeprefix(_SECTION)
            sections.setdefault(name, [])
        elif name:
            sections[name].append(line)
    results: dict[str, int] = {}
    for line in sections.pop(_RESULTS, []):
        key, _, digits = line.rpartition(" ")
        value = _number(digits)
        if key and value is not None:
            results[key] = value
    return ProgramOutput({key: "\n".join(lines) for key, lines in sections.items()}, results)


def error_name(result: int) -> str:
    """Return the name of a result's error, such as EINVAL; empty for a success."""
    return "" if result >= 0 else errno.errorcode.get(-result, f"error {-result}")


def _number(digits: str) -> int | None:
    try:
        value = int(digits, 16)
    except ValueError:
        return None
    return value - 2 * _TOP_BIT if value & _TOP_BIT else value
