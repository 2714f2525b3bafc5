"""`kubectl moorage`: moor under kubectl's name for plugins, with its completions."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(sys.executable).parent


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        arguments,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "PATH": f"{PROGRAMS}:{os.environ['PATH']}"},
    )


def test_kubectl_runs_moor_as_its_plugin() -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    done = run("kubectl", "moorage", "attach", "--print", "--set", "logLevel=debug")
    assert done.returncode == 0, done.stderr
    assert "--log-level=debug" in done.stdout


def test_a_plugin_that_fails_gives_kubectl_its_exit_status() -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    assert run("kubectl", "moorage", "attach", "--no-such-option").returncode == 2


def test_words_are_completed() -> None:
    done = run(str(PROGRAMS / "kubectl_complete-moorage"), "det")
    assert done.stdout.splitlines()[0].startswith("detach")
    assert done.stdout.splitlines()[-1] == ":4"


def test_options_are_completed() -> None:
    done = run(str(PROGRAMS / "kubectl_complete-moorage"), "detach", "--le")
    assert done.stdout.splitlines()[0].startswith("--leave-runtimes")
