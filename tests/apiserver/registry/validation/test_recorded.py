"""What Kubernetes 1.36 answered to each of these creations, word for word.

A line of `kubernetes_1_36.jsonl` is one object that differs from its kind's base: what is set and
dropped, and what the server said (null: nothing).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.apiserver.registry.rules import changed, complaint

CASES: list[dict[str, Any]] = [
    msgspec.json.decode(line)
    for line in Path(__file__).with_name("kubernetes_1_36.jsonl").read_bytes().splitlines()
]


def shown(case: dict[str, Any]) -> str:
    what = ",".join([*(f"{key}={value}" for key, value in case["set"].items()),
                     *case.get("drop", ())])  # fmt: skip
    return f"{case['kind']}:{what}"[:120]


@pytest.mark.parametrize("case", CASES, ids=shown)
def test_the_answer_is_upstreams(case: dict[str, Any]) -> None:
    obj = changed(case["kind"], case["set"], *case.get("drop", ()))
    assert complaint(case["kind"], obj) == case["says"]
