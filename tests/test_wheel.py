"""The wheel by itself: installed into a new environment, used far from here.

`make soak` builds it in isolation and installs what it requires; `make test` takes both from the
environment that runs the tests, which saves minutes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
_STEP_S = 300.0
_IS_WHOLE = bool(os.environ.get("MOORAGE_FUZZ"))

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3 * _STEP_S)]


def _run(*argv: str | Path, cwd: Path) -> str:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    # What is installed here is used once: to compile it all takes longer than that.
    environment["PIP_NO_COMPILE"] = "1"
    done = subprocess.run(
        argv, cwd=cwd, env=environment, capture_output=True, text=True, timeout=_STEP_S, check=False
    )
    assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
    return done.stdout


def _skip_without_index(pip: list[str], place: Path) -> None:
    reachable = subprocess.run(
        [*pip, "download", "--quiet", "--no-deps", "--retries=0", "--timeout=5", "hatchling"],
        cwd=place, capture_output=True, text=True, timeout=_STEP_S, check=False,
    )  # fmt: skip
    if reachable.returncode != 0:
        pytest.skip("no package index can be reached")


def _add_requirements(environment: Path) -> None:
    """Have an environment find packages of this one, but not the project itself.

    An editable installation is a `.pth` file too, and those of another directory are not read.
    """
    (target,) = environment.glob("lib/python*/site-packages")
    (target / "requirements.pth").write_text(f"{sysconfig.get_path('purelib')}\n")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, as `pip wheel` builds it."""
    place = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip"]
    if _IS_WHOLE:
        _skip_without_index(pip, place)
    # From a copy without what an editable installation generated beside the sources.
    listed = _run(
        "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=REPOSITORY
    )
    for name in filter(None, listed.split("\0")):
        source, target = REPOSITORY / name, place / "source" / name
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())
    more = () if _IS_WHOLE else ("--no-build-isolation", "--no-index")
    _run(*pip, "wheel", "--quiet", "--no-deps", *more, "--wheel-dir", "dist", "./source", cwd=place)
    (built,) = (place / "dist").glob("moorage-*.whl")
    return built


@pytest.fixture(scope="module")
def moor(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command `moor` of an environment with the wheel alone."""
    place = tmp_path_factory.mktemp("installed")
    venv.create(place / "venv", with_pip=False)
    install = [sys.executable, "-m", "pip", "--python", str(place / "venv"), "install", "--quiet"]
    if _IS_WHOLE:
        _run(*install, "--prefer-binary", wheel, cwd=place)
    else:
        _run(*install, "--no-deps", "--no-index", wheel, cwd=place)
        _add_requirements(place / "venv")
    return place / "venv" / "bin" / "moor"


def test_the_wheel_has_the_examples_and_what_is_generated(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        names = set(opened.namelist())
    assert {
        f"moorage/examples/{path.name}" for path in (REPOSITORY / "examples").iterdir()
    } <= names
    assert "moorage/wire/cri/generated/runtime_pb2.py" in names
    assert "moorage/wire/cri/generated/runtime_pb2_grpc.pyi" in names


@pytest.fixture
def started(moor: Path, tmp_path: Path) -> Iterator[Path]:
    """The data directory of a control plane that the wheel runs."""
    data = tmp_path / "data"
    _run(moor, "up", "--detach", "--no-node", "--data-dir", data, cwd=tmp_path)
    try:
        yield data
    finally:
        _run(moor, "down", "--delete-data", "--data-dir", data, cwd=tmp_path)


def test_a_control_plane_starts_from_the_wheel(moor: Path, started: Path, tmp_path: Path) -> None:
    answer = _run(moor, "status", "-o", "json", "--data-dir", started, cwd=tmp_path)
    parts = {row["part"]: row["state"] for row in json.loads(answer)}
    assert parts == {"supervisor": "ready", "apiserver": "ready", "controllers": "ready"}


def test_the_demo_of_the_wheel_finds_its_examples(moor: Path, tmp_path: Path) -> None:
    script = "from moorage.inspect.demo import find_examples; print(find_examples())"
    answer = _run(moor.parent / "python", "-c", script, cwd=tmp_path)
    assert answer.strip().endswith("site-packages/moorage/examples")
