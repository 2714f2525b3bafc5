"""Which faults are found in a source, and that each is one small change of it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.mutants.calls import TestCalls
from tests.mutants.choice import choose_tests
from tests.mutants.faults import apply_fault, find_faults

_SOURCES = Path(__file__).parents[2] / "src/moorage/runtimeclass"


def changed(source: str) -> set[str]:
    """Every version of the source with one fault in it."""
    return {apply_fault(source, fault) for fault in find_faults("a.py", source)}


@pytest.mark.parametrize(
    ("source", "faulty"),
    [
        ("x = a < b\n", "x = (a <= b)\n"),
        ("x = a < b\n", "x = (a >= b)\n"),
        ("x = a and b\n", "x = (a or b)\n"),
        ("x = a and b\n", "x = (b)\n"),
        ("x = not a\n", "x = (a)\n"),
        ("x = 'é', a == b\n", "x = 'é', (a != b)\n"),
        ("def f():\n    g()\n", "def f():\n    pass\n"),
        ("def f(a=True): g(a)\n", "def f(a=False): g(a)\n"),
        ("def f():\n    return a\n", "def f():\n    return None\n"),
        ("f(a, b)\n", "f(b, a)\n"),
        ("x = f(a, b=c)\n", "x = f(a)\n"),
        ("if a:\n    b = 1\n", "if not (a):\n    b = 1\n"),
        ("if a:\n    raise E('b')\n", "if a:\n    pass\n"),
        ("try:\n    f()\nexcept E:\n    x = y\n", "try:\n    f()\nexcept E:\n    raise\n"),
        ("try:\n    f()\nfinally:\n    g()\n", "try:\n    f()\nfinally:\n    pass\n"),
        ("x = [a for a in b if a]\n", "x = [a for a in b if True]\n"),
        ("x = {'a': b, 'c': d}\n", "x = {'c': d}\n"),
    ],
)
def test_a_fault_replaces_one_node(source: str, faulty: str) -> None:
    assert faulty in changed(source)


@pytest.mark.parametrize(
    "source",
    [
        '"""A module."""\n',
        "log.info('a', b=1)\n",
        "__all__ = ['a', 'b']\n",
        "Call = Callable[[str], int | None]\n",
        "x: dict[str, Any]\n",
        "def f(timeout_s=3): ...\n",
        "_LIMIT_BYTES = 64 * 1024\n",
        "class A(Protocol):\n    def f(self): return 1 < 2\n",
        "if TYPE_CHECKING:\n    import a\n",
        "class A:\n    def __repr__(self): return self.a + self.b\n",
    ],
)
def test_what_no_test_should_depend_on_has_no_fault(source: str) -> None:
    assert changed(source) == set()


def test_every_fault_of_a_real_package_is_valid_and_differs() -> None:
    for path in _SOURCES.glob("*.py"):
        source = path.read_text()
        for faulty in changed(source):
            assert ast.dump(ast.parse(faulty)) != ast.dump(ast.parse(source))


def test_a_fault_is_tried_with_the_tests_that_call_its_function_nearest_first() -> None:
    source = "def f():\n    return a\n\n\n@g\ndef h():\n    return b\n"
    fault = next(
        fault
        for fault in find_faults("moorage/p/q.py", source)
        if fault.replacement == "return None"
    )
    calls = {("moorage/p/q.py", 1)}
    tests = {
        "tests/p/test_other.py::test_quick": TestCalls(0.1, True, calls),
        "tests/p/test_q.py::test_slow": TestCalls(3.0, True, calls),
        "tests/p/test_q.py::test_quick": TestCalls(0.2, True, calls),
        "tests/p/test_q.py::test_failing": TestCalls(0.1, False, calls),
        "tests/p/test_q.py::test_elsewhere": TestCalls(0.1, True, {("moorage/p/q.py", 5)}),
    }
    assert fault.function == 1
    assert choose_tests(fault, tests) == [
        "tests/p/test_q.py::test_quick",
        "tests/p/test_q.py::test_slow",
        "tests/p/test_other.py::test_quick",
    ]


def test_a_file_that_no_test_calls_is_tried_with_the_tests_of_its_directory() -> None:
    fault = find_faults("moorage/p/d/q.py", "def f():\n    return a\n")[0]
    elsewhere = {("moorage/p/other.py", 1)}
    names = ("tests/p/d/test_a.py::t", "tests/p/d/test_q.py::t", "tests/p/test_b.py::t",
             "tests/p/e/test_c.py::t")  # fmt: skip
    tests = {name: TestCalls(0.1, True, elsewhere) for name in names}
    assert choose_tests(fault, tests) == ["tests/p/d/test_q.py::t", "tests/p/d/test_a.py::t"]
    tests["tests/p/e/test_c.py::t"] = TestCalls(0.1, True, {("moorage/p/d/q.py", 7)})
    assert choose_tests(fault, tests) == ["tests/p/e/test_c.py::t"]


def test_the_function_of_a_fault_starts_at_its_decorator() -> None:
    source = "@g\ndef h():\n    return b\n"
    assert {fault.function for fault in find_faults("a.py", source)} == {1}
