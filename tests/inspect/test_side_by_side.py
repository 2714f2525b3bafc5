"""Results of a command under several classes, compared."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.inspect.side_by_side import compare
from moorage.inspect.trials import FAILED, REFUSED, SUCCEEDED, TrialResult


def ran(name: str, output: str = "hi\n", code: int = 0) -> TrialResult:
    outcome = FAILED if code else SUCCEEDED
    return TrialResult(runtime_class=name, outcome=outcome, exit_code=code, output=output)


def refused(name: str) -> TrialResult:
    return TrialResult(runtime_class=name, outcome=REFUSED, reason="no node")


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ([], []),
        ([ran("a"), ran("b")], []),
        ([ran("a"), ran("b", code=3)], ["b: failed, not succeeded, exit code 3, not 0"]),
        ([ran("a"), ran("b", "ho\n")], ["b: another output"]),
        ([ran("a"), refused("b")], ["b: refused, not succeeded"]),
        # The first that ran is what the others are compared with.
        ([refused("a"), ran("b"), ran("c", "ho\n")],
         ["a: refused, not succeeded", "c: another output"]),
        ([refused("a"), refused("b")], []),
    ],
)  # fmt: skip
def test_what_differs(results: list[TrialResult], expected: list[str]) -> None:
    differences = compare(results).differences
    assert [f"{one.runtime_class}: {one.what}" for one in differences] == expected


def test_outputs_are_shown_as_a_diff() -> None:
    (difference,) = compare([ran("a", "one\ntwo\n"), ran("b", "one\n2\x1b[31m\n")]).differences
    assert difference.lines == ("--- a", "+++ b", "@@ -1,2 +1,2 @@", " one", "-two", "+2�[31m")


def test_long_differences_are_cut() -> None:
    long: Any = "".join(f"{number} {'x' * 999}\n" for number in range(9999))
    (difference,) = compare([ran("a", ""), ran("b", long)]).differences
    assert len(difference.lines) == 41
    assert difference.lines[-1].endswith("more lines")
    assert max(map(len, difference.lines)) <= 201


@given(st.lists(st.text(), min_size=2, max_size=4))
def test_any_outputs_can_be_compared(outputs: list[str]) -> None:
    results = [ran(str(number), output) for number, output in enumerate(outputs)]
    differing = {one.runtime_class for one in compare(results).differences}
    assert differing == {result.runtime_class for result in results if result.output != outputs[0]}
