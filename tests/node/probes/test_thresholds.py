from __future__ import annotations

import msgspec
import pytest

from moorage.api.containers import Probe
from moorage.node.probes.prober import ProbeKind, Thresholds


def verdicts(kind: ProbeKind, results: str, failures: int = 3, successes: int = 1) -> str:
    """The verdict after each result: `+` and `-` in, `+`, `-` and `.` (none) out."""
    probe = msgspec.convert({"failureThreshold": failures, "successThreshold": successes}, Probe)
    thresholds = Thresholds.of(kind, probe)
    signs = {True: "+", False: "-", None: "."}
    return "".join(signs[thresholds.add(sign == "+")] for sign in results)


@pytest.mark.parametrize(
    ("results", "failures", "successes", "wanted"),
    [
        ("+", 3, 1, "+"),
        ("---", 3, 1, "..-"),
        ("----", 3, 1, "..--"),
        ("--+--", 3, 1, "..+.."),
        ("-++-+++", 1, 3, "-..-..+"),
        ("-", 0, 0, "-"),
    ],
    ids=[
        "one is enough",
        "three in a row",
        "and on",
        "interrupted",
        "successes too",
        "zero is one",
    ],
)
def test_enough_equal_results_in_a_row(
    results: str, failures: int, successes: int, wanted: str
) -> None:
    assert verdicts(ProbeKind.READINESS, results, failures, successes) == wanted


@pytest.mark.parametrize(
    ("kind", "on_success", "on_failure"),
    [
        (ProbeKind.STARTUP, True, True),
        (ProbeKind.LIVENESS, False, True),
        (ProbeKind.READINESS, False, False),
    ],
)
def test_which_verdicts_are_final(kind: ProbeKind, on_success: bool, on_failure: bool) -> None:
    thresholds = Thresholds.of(kind, Probe())
    assert (thresholds.is_final(True), thresholds.is_final(False)) == (on_success, on_failure)
