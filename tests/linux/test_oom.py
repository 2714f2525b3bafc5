from __future__ import annotations

import pytest

from moorage.linux.oom import LOWEST_OOM_SCORE, oom_score_floor


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
