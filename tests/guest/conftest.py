"""The guest that MOORAGE_GUEST names, booted once, with this tree's Moorage in it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.image.python import build_wheel

from tests.guest.machine import Guest, booted, unusable
from tests.guest.preparation import VENV

VARIABLE = "MOORAGE_GUEST"


@pytest.fixture(scope="session")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guest]:
    named = os.environ.get(VARIABLE)
    if not named:
        pytest.skip(f"{VARIABLE} names no guest: make guest")
    directory = Path(named)
    if reason := unusable(directory):
        pytest.skip(reason)
    wheel = build_wheel(tmp_path_factory.mktemp("wheel"), 0)
    with booted(directory) as machine:
        machine.write(f"/root/{wheel.name}", wheel.read_bytes())
        # Compiling everything would take minutes in an emulated guest.
        install = f"{VENV}/bin/pip install --quiet --no-index --no-deps --no-compile"
        machine.must(f"{install} /root/{wheel.name}")
        yield machine
