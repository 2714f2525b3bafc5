"""The Makefile on a machine that lacks packages, with programs that stand in for the machine's."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression

from tests.runs import (
    BELOW,
    CLUSTERS,
    ENGINES,
    HERE,
    OTHERS,
    PLANES,
    RUNS,
    SERVERS,
    SHARED,
    run_of,
    runs_of,
)

REPOSITORY = Path(__file__).parents[1]
_TARGETS = re.findall(r"^([a-z]+):.*## ", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)

# Debian's python3 without python3-venv: no ensurepip until the package is installed.
_PYTHON = """#!/bin/sh
echo "python3 $*" >> "$LOG"
[ "$1" = -c ] && exec test -e "$STATE/python3-venv"
mkdir -p "$3/bin" && printf '#!/bin/sh\\n' > "$3/bin/pip" && chmod +x "$3/bin/pip"
"""
# apt-get of a machine whose package lists are empty until they are updated.
_APT_GET = """#!/bin/sh
echo "apt-get $*" >> "$LOG"
[ "$1" = update ] && { touch "$STATE/lists"; exit 0; }
[ -e "$STATE/lists" ] && [ ! -e "$STATE/offline" ] || { echo 'E: Unable to locate' >&2; exit 100; }
for last; do :; done
touch "$STATE/$last"
"""


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A directory with the Makefile and programs in `bin`."""
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in (("python3", _PYTHON), ("apt-get", _APT_GET)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    for name in ("Makefile", "pyproject.toml", "hatch_build.py"):
        shutil.copy(REPOSITORY / name, tmp_path / name)
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements" / "dev.lock").touch()
    (tmp_path / "src" / "moorage" / "registry").mkdir(parents=True)
    return tmp_path


def _make(machine: Path, *targets: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    log = machine / "log"
    done = subprocess.run(
        ["make", *targets],
        cwd=machine,
        env={
            "PATH": f"{machine / 'bin'}:{os.environ['PATH']}",
            "LOG": str(log),
            "STATE": str(machine),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done, log.read_text().splitlines()


def test_venv_updates_empty_package_lists_and_installs_what_is_missing(machine: Path) -> None:
    done, calls = _make(machine, "venv")
    assert done.returncode == 0, done.stderr
    tries = [call.split()[1] for call in calls if call.startswith("apt-get")]
    assert tries == ["install", "update", "install"]
    assert (machine / ".venv" / ".built").exists()


def test_venv_leaves_package_lists_alone_where_the_package_is_found(machine: Path) -> None:
    (machine / "lists").touch()
    done, calls = _make(machine, "venv")
    assert done.returncode == 0, done.stderr
    assert "apt-get update" not in calls


def test_venv_needs_no_package_where_ensurepip_is_there(machine: Path) -> None:
    (machine / "python3-venv").touch()
    done, calls = _make(machine, "venv")
    assert done.returncode == 0, done.stderr
    assert not any(call.startswith("apt-get") for call in calls)


def test_venv_says_what_is_missing_where_nothing_can_be_installed(machine: Path) -> None:
    (machine / "offline").touch()
    done, _ = _make(machine, "venv")
    assert done.returncode != 0
    assert "python3-venv is missing: install it as root" in done.stderr


# Fails a run with the mark $STATE/MARK, once per line in it.
_PYTEST = """#!/bin/sh
echo "pytest $*" >> "$LOG"
marks="$STATE/$2"
[ -s "$marks" ] || exit 0
sed -i 1d "$marks"
cache="${4#cache_dir=}/v/cache"
mkdir -p "$cache" && echo "{\\"tests/test_a.py::test_of_$2\\": true}" > "$cache/lastfailed"
exit 1
"""


# A linter fails with the mark $STATE/lint, each time.
_LINTER = """#!/bin/sh
echo "$(basename "$0") $*" >> "$LOG"
[ ! -e "$STATE/lint" ]
"""
# The interpreter that has the tools of this repository.
_INTERPRETER = f"""#!/bin/sh
echo "$(basename "$0") $*" >> "$LOG"
[ "$2" != tools.second_chances ] || PYTHONPATH={REPOSITORY} exec {sys.executable} "$@"
[ ! -e "$STATE/lint" ]
"""


@pytest.mark.parametrize(
    ("failures", "code", "again"),
    [
        ({}, 0, []),
        ({"lint": 1}, 2, []),
        ({SHARED: 1}, 0, [SHARED]),
        ({CLUSTERS: 1}, 0, [CLUSTERS]),
        ({ENGINES: 1}, 0, [ENGINES]),
        ({OTHERS: 1}, 0, [OTHERS]),
        ({SHARED: 1, OTHERS: 1}, 0, [SHARED, OTHERS]),
        ({"lint": 1, OTHERS: 1}, 2, [OTHERS]),
        ({OTHERS: 2}, 2, [OTHERS]),
    ],
)
def test_what_failed_runs_once_more(
    machine: Path, failures: dict[str, int], code: int, again: list[str]
) -> None:
    programs = machine / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name in ("pytest", "ruff", "python", "mypy", "lint-imports"):
        stand_ins = {"pytest": _PYTEST, "python": _INTERPRETER}
        (programs / name).write_text(stand_ins.get(name, _LINTER))
        (programs / name).chmod(0o755)
    for built in (".installed", ".built"):
        (machine / ".venv" / built).touch()
    for mark, count in failures.items():
        (machine / mark).write_text("failure\n" * count)
    # Marks of an earlier run say nothing about this one.
    for name in ("clusters", "lint"):
        (machine / ".venv" / f"{name}.failed").touch()
    done, calls = _make(machine, "--old-file=packages", "test", "--keep-going")
    assert done.returncode == code, done.stderr
    runs = [call.split(" -o ")[0] for call in calls if call.startswith("pytest")]
    assert sorted(runs[: len(RUNS)]) == sorted(f"pytest -m {mark}" for mark in RUNS)
    assert runs[len(RUNS) :] == [f"pytest -m {mark}" for mark in again]
    # The list comes last.
    *calls, last = calls
    assert last.startswith("python -m tools.second_chances ")
    assert [call for call in calls if "--last-failed" in call] == calls[len(calls) - len(again) :]
    # Lint finds the same each time.
    assert sum(call.startswith("ruff format") for call in calls) == 1
    assert done.stdout.count("run again, alone") == len(again)
    listed = [f"  tests/test_a.py::test_of_{mark}" for mark in sorted(again)]
    lines = done.stdout.splitlines()
    at = lines.index(f"second chances: {len(again)}")
    assert lines[at + 1 : at + 1 + len(listed)] == listed


def test_the_image_is_built_again_only_when_what_it_is_made_of_changed(machine: Path) -> None:
    programs = machine / ".venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "python").write_text(_LINTER)
    (programs / "python").chmod(0o755)
    for built in (".installed", ".built"):
        (machine / ".venv" / built).touch()
    source = machine / "src" / "moorage" / "clock.py"
    source.touch()
    (machine / "build" / "image").mkdir(parents=True)
    target = "build/image/.current"
    done, calls = _make(machine, target)
    assert done.returncode == 0, done.stderr
    assert calls == ["python -m tools.image --output build/image"]
    assert _make(machine, target)[1] == calls
    later = (machine / target).stat().st_mtime + 1
    os.utime(source, (later, later))
    (machine / "lint").touch()
    done, calls = _make(machine, target)
    assert done.returncode == 0, done.stderr
    assert len(calls) == 2
    # One that cannot be built is tried again next time.
    assert "the image is not built: tests that run it are skipped" in done.stdout
    assert len(_make(machine, target)[1]) == 3


def test_workflows_use_targets_that_exist() -> None:
    used = [
        target
        for workflow in (REPOSITORY / ".github" / "workflows").glob("*.yaml")
        for targets in re.findall(r"run: make (.*)$", workflow.read_text(), re.MULTILINE)
        for target in targets.split()
    ]
    assert {"lint", "unit", "test", "docs"} <= set(used) <= set(_TARGETS)


@pytest.mark.parametrize("target", [target for target in _TARGETS if target != "help"])
def test_each_target_is_in_the_documentation(target: str) -> None:
    page = (REPOSITORY / "docs" / "development.md").read_text()
    assert f"| `make {target}` |" in page


@pytest.mark.parametrize(
    ("module", "runs"),
    [
        ("api/test_errors.py", {OTHERS}),
        ("engine/whole/test_pods.py", {BELOW}),
        ("apiserver/registry/test_objects.py", {OTHERS}),
        ("apiserver/test_kubectl.py", {PLANES, SERVERS}),
        ("clients/test_kopf.py", {PLANES, ENGINES}),
        ("cluster/test_cluster.py", {ENGINES}),
        ("cluster/whole/test_kill.py", {CLUSTERS}),
        ("cluster/whole/test_own_ports.py", {SHARED, CLUSTERS}),
        ("test_wheel.py", {ENGINES}),
    ],
)
def test_a_module_is_imported_by_runs_that_its_tests_can_belong_to(
    module: str, runs: set[str]
) -> None:
    assert runs_of(HERE / module) == runs


@pytest.mark.parametrize(
    ("marks", "run"),
    [
        (set(), OTHERS),
        ({"root"}, OTHERS),
        ({"below", "root"}, BELOW),
        ({"below", "cluster"}, BELOW),
        ({"server"}, SERVERS),
        ({"cluster", "server"}, ENGINES),
        ({"cluster"}, ENGINES),
        ({"cluster", "whole"}, CLUSTERS),
        ({"cluster", "whole", "shared"}, SHARED),
        ({"cluster", "whole", "shared", "plane"}, PLANES),
    ],
)
def test_each_test_belongs_to_one_run(marks: set[str], run: str) -> None:
    assert run_of(marks) == run
    matching = [
        one for one in RUNS if Expression.compile(one).evaluate(lambda name, /, **_: name in marks)
    ]
    assert matching == [run]
