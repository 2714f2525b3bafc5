from __future__ import annotations

from pathlib import Path

import pytest

from moorage.api.errors import NotFoundError
from moorage.cli import main as main_module
from moorage.cli.main import main
from moorage.cluster.access.credentials import Pair
from moorage.cluster.access.identities import AuthorityError
from moorage.cluster.errors import CannotRunPodsError, NotRunningError
from moorage.cluster.settings import SettingsError
from moorage.linux.command import CommandError
from moorage.wire.client.config import ConfigError


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
def test_what_people_can_act_on_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    status: int,
) -> None:
    raise_from(monkeypatch, error)
    with pytest.raises(SystemExit) as caught:
        main(["status"])
    assert caught.value.code == status
    errors = capsys.readouterr().err
    assert errors.startswith("moor: ")
    assert "why" in errors
    assert errors.count("\n") == 1


def test_a_mistake_of_ours_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    raise_from(monkeypatch, KeyError("x"))
    with pytest.raises(KeyError):
        main(["status"])


def raise_from(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(**_: object) -> None:
        raise error

    monkeypatch.setattr(main_module.cli, "main", fail)
