"""A load of everything at once gives a history that can be true, through compactions and kills."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.apiserver.history.checker import check
from tests.apiserver.history.load import Load, record
from tests.ports import free_port

_MINUTES = float(os.environ.get("MOORAGE_HISTORY_MINUTES", "0"))


@pytest.mark.timeout(int(_MINUTES * 120) + 120)
async def test_every_answer_can_be_true(tmp_path: Path) -> None:
    seed, load = 1, Load()
    if _MINUTES:
        seed = random.randrange(2**32)
        chosen = random.Random(seed)
        load = Load(
            seconds=_MINUTES * 60,
            kills=int(_MINUTES * chosen.choice((2, 6))),
            keys=chosen.choice((2, 4, 12)),
            writers=chosen.choice((4, 8, 16)),
            readers=chosen.choice((3, 6)),
            watchers=chosen.choice((12, 30)),
        )
    history = await record(tmp_path, free_port(), seed, load)
    wrong = check(history)
    assert not wrong, f"seed {seed}, {load}: {len(wrong)} of {history.count}:\n" + "\n".join(
        wrong[:20]
    )
    # The load did what it is for.
    assert history.kills == load.kills
    assert history.count > 100
    assert any(isinstance(event, int) for stream in history.streams for event in stream.events)
    assert any(listing.exact for listing in history.lists)
