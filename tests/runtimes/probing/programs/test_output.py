"""Output of probe programs, parsed."""

from __future__ import annotations

import string

from hypothesis import given
from hypothesis import strategies as st

from moorage.runtimes.probing.programs import parse_output

_NAMES = st.text(string.ascii_lowercase + "-_", min_size=1)


@given(st.dictionaries(_NAMES, st.integers(-(2**63), 2**63 - 1)))
def test_results_are_read_as_they_were_printed(results: dict[str, int]) -> None:
    lines = [f"{name} {value & 0xFFFFFFFFFFFFFFFF:016x}" for name, value in results.items()]
    assert parse_output("\n".join(["== results", *lines])).results == results


@given(st.text())
def test_no_text_is_too_strange(text: str) -> None:
    parse_output(text)
    parse_output(f"== results\n{text}")


def test_a_terminals_line_ends_are_no_part_of_the_text() -> None:
    output = parse_output("== /proc/self/status\r\nSeccomp:\t2\r\n== results\r\na 0001\r\n")
    assert output.status_value("Seccomp") == "2"
    assert output.results == {"a": 1}
