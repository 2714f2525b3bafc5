"""The choice of tests for a fault: those of its package that call the function, nearest first, and
the other tests of its own file.

`src/moorage/node/probes/checks.py` is nearest to `tests/node/probes/test_http.py`, then to the
other tests of that directory, then to those of the package. Of files as near as each other the
quickest test of each comes first, then the next of each: the tests of one file call alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePath

from tests.mutants.calls import TestCalls
from tests.mutants.faults import Fault

# The distance of a test outside the directory that mirrors a fault's.
_ELSEWHERE = 3
# What the tests of one fault may take altogether when nothing is wrong, with calls recorded: that
# takes three times as long as without.
_BUDGET_S = 120.0


def choose_tests(fault: Fault, tests: Mapping[str, TestCalls]) -> list[str]:
    """Return the names of the tests to run, in order; none if no test can notice the fault."""
    passing = {name: test for name, test in tests.items() if test.passed}
    if any(_can_notice(fault, test) for test in passing.values()):
        # A value that is cached for all tests is computed in the first of its file's own tests.
        able = [
            name
            for name, test in passing.items()
            if _can_notice(fault, test) or not _distance(fault, name)
        ]
    else:
        # Called while modules are imported, or in a process of its own, whose calls are not
        # recorded: by tests that use the file, or are of its directory.
        able = [
            name
            for name, test in passing.items()
            if _calls_file(fault, test) or _distance(fault, name) < _ELSEWHERE
        ]
    chosen: list[str] = []
    total = 0.0
    ranks = _ranks(able, tests)

    def order(name: str) -> tuple[bool, bool, int, int, float]:
        test, distance = tests[name], _distance(fault, name)
        is_far = not _can_notice(fault, test), not _calls_file(fault, test)
        return *is_far, distance, ranks[name], test.seconds

    for name in sorted(able, key=order):
        total += tests[name].seconds
        if chosen and total > _BUDGET_S:
            break
        chosen.append(name)
    return chosen


def _ranks(names: Iterable[str], tests: Mapping[str, TestCalls]) -> dict[str, int]:
    """Each test's place among those of its file, the quickest first."""
    by_file: dict[str, list[str]] = {}
    for name in sorted(names, key=lambda name: tests[name].seconds):
        by_file.setdefault(name.partition("::")[0], []).append(name)
    return {name: rank for alike in by_file.values() for rank, name in enumerate(alike)}


def _can_notice(fault: Fault, test: TestCalls) -> bool:
    # What stands outside of functions may be used by every test: a table, a default, a declaration.
    return not fault.function or (fault.path, fault.function) in test.functions


def _calls_file(fault: Fault, test: TestCalls) -> bool:
    return any(path == fault.path for path, _ in test.functions)


def _distance(fault: Fault, name: str) -> int:
    source, test = PurePath(fault.path), PurePath(name.partition("::")[0])
    # Without `moorage` and `tests`.
    directory = source.parent.parts[1:]
    if test.stem == f"test_{source.stem}":
        return 0
    if source.stem in test.stem:
        return 1
    return 2 if test.parent.parts[1:] == directory else _ELSEWHERE
