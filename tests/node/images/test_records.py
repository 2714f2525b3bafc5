"""Records of pulls outlive the agent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from moorage.node.images.records import PullRecords
from moorage.node.images.verification import Access, PullSecret
from tests.clocks import START_S, FakeClock

NAME, REPOSITORY, ID = "r.example/app:1", "r.example/app", "sha256:app"
SECRET = PullSecret("u1", "team", "pull", "hash-1")
MINE = Access.by(SECRET)


def records_in(directory: Path, clock: FakeClock | None = None) -> PullRecords:
    """As an agent that starts has them."""
    records = PullRecords(directory, clock or FakeClock())
    records.load()
    return records


def files(directory: Path, kind: str) -> list[Path]:
    return sorted((directory / kind).iterdir())


async def test_a_pull_leaves_a_record_that_lasts(tmp_path: Path) -> None:
    records = records_in(tmp_path)
    assert not records.is_pulled(NAME, ID)
    await records.begin(NAME, "")
    assert records.is_pulled(NAME, ID)
    assert len(files(tmp_path, "pulling")) == 1
    await records.succeeded(NAME, ID, REPOSITORY, MINE)
    assert files(tmp_path, "pulling") == []
    for pulled in (records, records_in(tmp_path)):
        # By whatever name: the image is what counts.
        assert pulled.is_pulled("r.example/other:1", ID)
        assert pulled.access(ID, REPOSITORY) == MINE
        assert pulled.access(ID, "r.example/other") == Access()
        assert pulled.access("sha256:other", REPOSITORY) == Access()
        assert not pulled.is_pulled(NAME, "sha256:other")


async def test_files_have_the_kubelets_format_and_are_private(tmp_path: Path) -> None:
    records = records_in(tmp_path)
    await records.begin(NAME, "")
    (intent,) = files(tmp_path, "pulling")
    content = json.loads(intent.read_text())
    assert (content["kind"], content["image"]) == ("ImagePullIntent", NAME)
    await records.succeeded(NAME, ID, REPOSITORY, MINE)
    (record,) = files(tmp_path, "pulled")
    assert json.loads(record.read_text()) == {
        "kind": "ImagePulledRecord",
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "imageRef": ID,
        "lastUpdatedTime": "2026-01-01T00:00:00Z",
        "credentialMapping": {
            REPOSITORY: {
                "kubernetesSecrets": [
                    {"uid": "u1", "namespace": "team", "name": "pull", "credentialHash": "hash-1"}
                ]
            }
        },
    }
    assert record.name.startswith("sha256-")
    for path in (record, tmp_path / "pulled", tmp_path / "pulling"):
        assert path.stat().st_mode & 0o077 == 0


async def test_a_failed_pull_leaves_nothing(tmp_path: Path) -> None:
    records = records_in(tmp_path)
    for present in ("", ID):
        await records.begin(NAME, present)
        await records.failed(NAME, present)
        assert files(tmp_path, "pulling") == []
        assert not records.is_pulled(NAME, ID)


@pytest.mark.parametrize("present_now", [None, ID])
async def test_a_pull_that_may_have_worked_is_settled_later(
    tmp_path: Path, present_now: str | None
) -> None:
    """The engine went silent, or has the image although it said that the pull failed."""
    records = records_in(tmp_path)
    await records.begin(NAME, "sha256:before")
    await records.failed(NAME, present_now)
    for pulled in (records, records_in(tmp_path)):
        assert pulled.is_pulled(NAME, ID)
        assert not pulled.is_pulled(NAME, "sha256:before")
        assert pulled.unsettled() == [(NAME, "sha256:before")]
    await records.settle(NAME, ID, REPOSITORY)
    for pulled in (records, records_in(tmp_path)):
        assert pulled.unsettled() == []
        assert pulled.is_pulled("by-another-name", ID)
        assert pulled.access(ID, REPOSITORY) == Access()


async def test_an_agent_that_is_killed_during_a_pull(tmp_path: Path) -> None:
    await records_in(tmp_path).begin(NAME, "sha256:before")
    after = records_in(tmp_path)
    assert after.is_pulled(NAME, ID)
    assert not after.is_pulled(NAME, "sha256:before")
    assert after.unsettled() == [(NAME, "sha256:before")]


async def test_the_last_of_several_pulls_takes_the_intent_away(tmp_path: Path) -> None:
    records = records_in(tmp_path)
    await records.begin(NAME, "")
    await records.begin(NAME, "")
    assert len(files(tmp_path, "pulling")) == 1
    await records.succeeded(NAME, ID, REPOSITORY, MINE)
    assert records.unsettled() == []
    assert len(files(tmp_path, "pulling")) == 1
    # What has the name now came from the other.
    await records.failed(NAME, ID)
    assert files(tmp_path, "pulling") == []
    await records.begin(NAME, ID)
    records.abandoned(NAME)
    assert records.unsettled() == [(NAME, ID)]


@pytest.mark.parametrize("kind", ["pulled", "pulling"])
async def test_a_damaged_record_means_that_it_was_pulled(tmp_path: Path, kind: str) -> None:
    records = records_in(tmp_path)
    await records.begin(NAME, "")
    if kind == "pulled":
        await records.succeeded(NAME, ID, REPOSITORY, MINE)
    (file,) = files(tmp_path, kind)
    file.write_bytes(file.read_bytes()[:-5])
    (tmp_path / kind / ".sha256-x.new").write_text("half a file")
    after = records_in(tmp_path)
    assert after.is_pulled(NAME, ID)
    assert after.access(ID, REPOSITORY) == Access()
    await after.note(ID, REPOSITORY, MINE)
    assert records_in(tmp_path).access(ID, REPOSITORY) == MINE


async def test_unwritable_record_keeps_the_intent(tmp_path: Path) -> None:
    records = records_in(tmp_path)
    await records.begin(NAME, "")
    (tmp_path / "pulled").rmdir()
    await records.succeeded(NAME, ID, REPOSITORY, MINE)
    # No record names its owner, but the intent shows that it was pulled.
    assert records.is_pulled(NAME, ID)
    assert records.unsettled() == [(NAME, "")]
    (tmp_path / "pulling" / "sha256-x").touch()
    for left in files(tmp_path, "pulling"):
        left.unlink()
    (tmp_path / "pulling").rmdir()
    with pytest.raises(OSError, match="No such file"):
        await records.begin("r.example/more:1", "")
    assert records.unsettled() == [(NAME, "")]


async def test_records_go_with_their_images(tmp_path: Path) -> None:
    clock = FakeClock()
    records = records_in(tmp_path, clock)
    for image in ("sha256:old", "sha256:kept"):
        await records.note(image, REPOSITORY, MINE)
    clock.advance(100)
    await records.note("sha256:new", REPOSITORY, MINE)
    await records.prune({"sha256:kept"}, START_S + 50)
    for pulled in (records, records_in(tmp_path)):
        assert not pulled.is_pulled(NAME, "sha256:old")
        assert pulled.is_pulled(NAME, "sha256:kept")
        assert pulled.is_pulled(NAME, "sha256:new"), "noted after the images were listed"
