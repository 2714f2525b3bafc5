from __future__ import annotations

from pathlib import Path

import pytest

from moorage.linux.process_memory import LOWEST_OOM_SCORE, oom_score_floor, own_oom_score


@pytest.mark.parametrize(
    ("own", "score", "expected"),
    [
        (["CAP_SYS_RESOURCE"], "0", LOWEST_OOM_SCORE),
        ([], "0", 0),
        ([], "-999", -999),
        ([], "", LOWEST_OOM_SCORE),
    ],
)
def test_the_lowest_score_is_its_own_unless_it_may_lower_it(
    own: list[str], score: str, expected: int
) -> None:
    assert oom_score_floor(own, score) == expected


def test_own_score_is_read_where_the_kernel_has_one(tmp_path: Path) -> None:
    assert own_oom_score() == Path("/proc/self/oom_score_adj").read_text().strip()
    assert own_oom_score(tmp_path / "none") == ""
    assert LOWEST_OOM_SCORE == -1000
