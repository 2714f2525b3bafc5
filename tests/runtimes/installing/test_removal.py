"""Removal of runtimes: only what was added, and with a word on what is left."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage.runtimes.installing.downloads import RuntimeInstallationError
from moorage.runtimes.installing.plan import Request, Source, plan_installation
from moorage.runtimes.installing.removal import OrphanedClass, check_removal, consequence


def test_a_handler_that_was_added_may_be_removed(tmp_path: Path) -> None:
    request = Request(handler="h", source=Source.BINARY, origin="/usr/bin/crun")
    plan = plan_installation(request, "ab" * 32, tmp_path / "store", tmp_path)
    plan.file.write_bytes(plan.definition)
    check_removal("h", plan.file)


def test_a_handler_that_was_found_or_written_by_hand_is_not_removed(tmp_path: Path) -> None:
    file = tmp_path / "crun.toml"
    file.write_text('adapter = "oci"\n')
    with pytest.raises(RuntimeInstallationError) as caught:
        check_removal("crun", file)
    assert f"is defined by {file}: set `enabled = false`" in str(caught.value)


def test_a_handler_that_nothing_defines_is_named(tmp_path: Path) -> None:
    with pytest.raises(RuntimeInstallationError, match="there is no handler nix"):
        check_removal("nix", tmp_path / "nix.toml")


def test_the_consequence_names_classes_and_pods() -> None:
    assert consequence([]) == ""
    sentence = consequence([OrphanedClass("a", 2), OrphanedClass("b", 1)])
    assert "RuntimeClass a b stays: 3 of its pods go on" in sentence
    assert "kubectl delete runtimeclass a b" in sentence
    assert "none of its pods runs" in consequence([OrphanedClass("a", 0)])
