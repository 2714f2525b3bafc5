"""The calls of a test run: which test calls which function of the product, and how long it takes.

Only calls are recorded, not lines: a trace function that returns None costs little, and a fault's
function is enough to choose the tests that can notice it.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import pytest


@dataclass(slots=True)
class TestCalls:
    """What one test does: seconds it takes, and (path, first line) of the functions it calls."""

    __test__ = False

    seconds: float = 0.0
    passed: bool = False
    functions: set[tuple[str, int]] = field(default_factory=set)


class CallRecorder:
    """A pytest plugin that records the calls of each test.

    The calls of its fixtures are its own, and so are those that its file makes when it is imported:
    cases of parameters are made then.
    """

    def __init__(self, source: Path) -> None:
        self.tests: dict[str, TestCalls] = {}
        self._prefix = f"{source}/"
        self._current: set[tuple[str, int]] = set()
        self._by_file: dict[str, set[tuple[str, int]]] = {}
        # Which code objects are ours, by identity: most calls are not.
        self._keys: dict[object, tuple[str, int] | None] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        if not isinstance(collector, pytest.Module):
            return (yield)
        self._current = self._by_file[collector.nodeid] = set()
        sys.settrace(self._call_in_collection)
        try:
            return (yield)
        finally:
            sys.settrace(None)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._current = set(self._by_file.get(item.nodeid.partition("::")[0], ()))
        self.tests[item.nodeid] = TestCalls(passed=True, functions=self._current)
        sys.settrace(self._call)
        threading.settrace(self._call)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test = self.tests[report.nodeid]
        test.seconds += report.duration
        test.passed = test.passed and (
            report.passed if report.when == "call" else not report.failed
        )
        if report.skipped:
            test.passed = False

    def _call_in_collection(self, frame: FrameType, event: str, argument: object) -> None:
        """Leave out what a module of the product calls while it is imported: the first file that
        imports it is no nearer to it than the others.
        """
        outer: FrameType | None = frame
        while outer is not None:
            code = outer.f_code
            if code.co_name == "<module>" and code.co_filename.startswith(self._prefix):
                return
            outer = outer.f_back
        self._call(frame, event, argument)

    def _call(self, frame: FrameType, _event: str, _argument: object) -> None:
        code = frame.f_code
        try:
            key = self._keys[code]
        except KeyError:
            path = code.co_filename
            ours = path.startswith(self._prefix)
            key = (path.removeprefix(self._prefix), code.co_firstlineno) if ours else None
            self._keys[code] = key
        if key is not None:
            self._current.add(key)


def write_calls(tests: dict[str, TestCalls], path: Path) -> None:
    """Write what a recorder found."""
    rows = {
        name: [test.seconds, test.passed, sorted(test.functions)] for name, test in tests.items()
    }
    path.write_text(json.dumps(rows))


def read_calls(path: Path) -> dict[str, TestCalls]:
    """Read what `write_calls` wrote."""
    return {
        name: TestCalls(seconds, passed, {(file, line) for file, line in functions})
        for name, (seconds, passed, functions) in json.loads(path.read_text()).items()
    }
