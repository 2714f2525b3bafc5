"""Which faults are found in a source, and that each is one small change of it."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.mutants.calls import TestCalls
from tests.mutants.choice import choose_tests
from tests.mutants.faults import apply_fault, find_faults
from tests.mutants.session import Selection

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
        (
            "class A(asyncio.Protocol):\n    x = a < b\n",
            "class A(asyncio.Protocol):\n    x = (a <= b)\n",
        ),
    ],
)
def test_a_fault_replaces_one_node(source: str, faulty: str) -> None:
    assert faulty in changed(source)


@pytest.mark.parametrize(
    "source",
    [
        '"""A module."""\n',
        "log.info('a', b=1)\n",
        "_LOG.info('a', b=1)\n",
        "__all__ = ['a', 'b']\n",
        "Call = Callable[[str], int | None]\n",
        "x: dict[str, Any]\n",
        "x = min(a, b)\n",
        "Value = str | int | Sequence['Value']\n",
        "def f(timeout_s=3): ...\n",
        "_LIMIT_BYTES = 64 * 1024\n",
        "_READ_BUFSIZE = 2 * 1024\n",
        "x = max(a, b)\n",
        "x = f(total=_REQUEST_TIMEOUT_S)\n",
        "class A(Protocol):\n    def f(self): return 1 < 2\n",
        "class A(typing.Protocol[T]):\n    def f(self): return 1 < 2\n",
        "if TYPE_CHECKING:\n    import a\n",
        "class A:\n    def __repr__(self): return self.a + self.b\n",
    ],
)
def test_what_no_test_should_depend_on_has_no_fault(source: str) -> None:
    assert changed(source) == set()


def test_every_fault_of_a_real_package_is_valid_and_differs() -> None:
    # To find a module's faults takes long: one module in twelve.
    for path in sorted(_SOURCES.glob("*.py"))[::12]:
        source = path.read_text()
        tree = ast.dump(ast.parse(source))
        # Each takes as long as the module is large: some of them are enough here.
        for faulty in sorted(changed(source))[::20]:
            assert ast.dump(ast.parse(faulty)) != tree


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
        # A cached value may have been computed for an earlier test.
        "tests/p/test_q.py::test_elsewhere",
    ]


def test_a_file_that_no_test_calls_is_tried_with_the_tests_of_its_directory() -> None:
    fault = find_faults("moorage/p/d/q.py", "def f():\n    return a\n")[0]
    elsewhere = {("moorage/p/other.py", 1)}
    names = ("tests/p/d/test_a.py::t", "tests/p/d/test_q.py::t", "tests/p/test_b.py::t",
             "tests/p/e/test_c.py::t")  # fmt: skip
    tests = {name: TestCalls(0.1, True, elsewhere) for name in names}
    assert choose_tests(fault, tests) == ["tests/p/d/test_q.py::t", "tests/p/d/test_a.py::t"]
    tests["tests/p/e/test_c.py::t"] = TestCalls(0.1, True, {("moorage/p/d/q.py", 7)})
    # Its function may run in a process of its own.
    assert choose_tests(fault, tests) == [
        "tests/p/e/test_c.py::t", "tests/p/d/test_q.py::t", "tests/p/d/test_a.py::t",
    ]  # fmt: skip


def test_the_function_of_a_fault_starts_at_its_decorator() -> None:
    source = "@g\ndef h():\n    return b\n"
    assert {fault.function for fault in find_faults("a.py", source)} == {1}


def test_of_files_as_near_as_each_other_each_has_its_turn() -> None:
    (fault, *_) = find_faults("moorage/p/q.py", "def f():\n    return a\n")
    calls = {("moorage/p/q.py", 1)}
    tests = {
        f"tests/p/test_{name}": TestCalls(seconds, True, calls)
        for name, seconds in (("a.py::test_1", 1.0), ("a.py::test_2", 2.0), ("b.py::test_1", 3.0),
                              ("b.py::test_2", 2.5))
    }  # fmt: skip
    assert [name.removeprefix("tests/p/test_") for name in choose_tests(fault, tests)] == [
        "a.py::test_1", "b.py::test_2", "a.py::test_2", "b.py::test_1",
    ]  # fmt: skip


def test_a_case_that_a_fault_renames_is_run_in_place_of_the_other() -> None:
    def items(*names: str) -> list[Any]:
        return [SimpleNamespace(nodeid=f"test_a.py::{name}") for name in names]

    known = ["test_a.py::test_f[a-1]", "test_a.py::test_f[b-2]", "test_a.py::test_g"]
    collected = items("test_f[a-1]", "test_f[b-None]", "test_g", "test_h")
    for chosen, expected in (
        (known[:2], ["test_f[a-1]", "test_f[b-None]"]),
        (known[1:2], ["test_f[b-None]"]),
        (known[2:], ["test_g"]),
    ):
        kept = list(collected)
        Selection(chosen, known).pytest_collection_modifyitems(kept)
        assert [item.nodeid.partition("::")[2] for item in kept] == expected


def test_what_a_file_calls_when_it_is_imported_is_called_by_its_tests(tmp_path: Path) -> None:
    source, tests = tmp_path / "src", tmp_path / "tests"
    for directory in (source, tests):
        directory.mkdir()
    (source / "product_of_test.py").write_text(
        "def made():\n    return 1\n\ndef own():\n    return 2\n\nOWN = own()\n"
    )
    (tests / "test_a.py").write_text(
        "import product_of_test as p\nCASE = p.made()\n\ndef test_a():\n    assert CASE == 1\n"
    )
    script = (
        "import sys, json, pathlib, pytest\n"
        "from tests.mutants.calls import CallRecorder\n"
        f"sys.path.insert(0, {str(source)!r})\n"
        f"recorder = CallRecorder(pathlib.Path({str(source)!r}))\n"
        f"pytest.main(['-q', '-p', 'no:cacheprovider', '-c', '/dev/null', '--rootdir', "
        f"{str(tests)!r}, {str(tests)!r}], plugins=[recorder])\n"
        "print(json.dumps([sorted(test.functions) for test in recorder.tests.values()]))\n"
    )
    tree = Path(__file__).parents[2]
    ran = subprocess.run(
        [sys.executable, "-c", script], cwd=tree, capture_output=True, text=True, check=True
    )
    assert json.loads(ran.stdout.splitlines()[-1]) == [[["product_of_test.py", 1]]]
