from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from moorage.api.errors import NotFoundError
from moorage.cluster.access.credentials import Pair
from moorage.cluster.access.identities import AuthorityError
from moorage.cluster.errors import CannotRunPodsError, NotRunningError
from moorage.cluster.settings import Settings, SettingsError
from moorage.linux.command import CommandError
from moorage.wire.client.config import ConfigError
from tests.cli.moor import FakeFactory


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (SettingsError("why"), 1),
        (ConfigError("why"), 1),
        (CommandError(["conmon"], "why"), 1),
        (OSError(28, "why"), 1),
        (NotFoundError.of("pods", "why"), 1),
        (NotRunningError("why"), 3),
        (CannotRunPodsError("why"), 4),
        (AuthorityError(Pair.named(Path("/pki"), "ca"), "why"), 1),
    ],
)
def test_what_people_can_act_on_is_one_line(error: Exception, status: int) -> None:
    answer = Failing(error).moor("status")
    assert answer.status == status
    assert answer.err.startswith("moor: ")
    assert "why" in answer.err
    assert answer.err.count("\n") == 1


def test_a_mistake_of_ours_is_not_hidden() -> None:
    with pytest.raises(KeyError):
        Failing(KeyError("x")).moor("status")


class Failing(FakeFactory):
    """A cluster that fails at the first use."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    def cluster(self, *_: object, **__: object) -> Any:
        return self

    def running_settings(self) -> Settings:
        raise self._error
