"""Records of installations: names of every length, and files that are damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage.runtimeclass.installations import Record
from moorage.runtimes.installing.records import Records


@pytest.mark.parametrize("length", [1, 199, 200, 201, 245, 251, 253])
def test_a_name_of_any_length_is_recorded_and_forgotten(tmp_path: Path, length: int) -> None:
    names = ["a" * (length - 1) + end for end in "xy"]
    records = Records(tmp_path)
    for name in names:
        records.write(name, Record(uid=name[-1], handler="h", version="1"))
        records.write(name, Record(uid=name[-1], handler="h", version="2"))
    assert Records(tmp_path).all() == {
        name: Record(uid=name[-1], handler="h", version="2") for name in names
    }
    records.remove(names[0])
    assert list(records.all()) == [names[1]]
    records.remove(names[1])
    assert records.all() == {}
    records.remove(names[1])


def test_a_damaged_record_and_one_under_anothers_name_are_left_out(tmp_path: Path) -> None:
    records = Records(tmp_path)
    records.write("a", Record(uid="u", handler="h"))
    (file,) = (tmp_path / ".installations").iterdir()
    file.with_name("b.json").write_text("{")
    file.with_name("c.json").write_text('{"uid":"u","handler":"h","name":"d"}')
    assert list(records.all()) == ["a"]


@pytest.mark.parametrize("length", [201, 245])
def test_a_record_of_an_earlier_version_stays_until_its_installation_changes(
    tmp_path: Path, length: int
) -> None:
    directory = tmp_path / ".installations"
    directory.mkdir()
    name = "a" * length
    former = directory / f"{name}.json"
    records = Records(tmp_path)
    former.write_text('{"uid":"u","handler":"h","version":"1"}')
    assert records.all() == {name: Record(uid="u", handler="h", version="1")}
    former_text = former.read_text()
    records.write(name, Record(uid="u", handler="h", version="2"))
    assert not former.exists()
    # As a kill between the two leaves it.
    former.write_text(former_text)
    assert records.all() == {name: Record(uid="u", handler="h", version="2")}
    records.remove(name)
    assert records.all() == {}
    former.write_text(former_text)
    records.remove(name)
    assert list(directory.iterdir()) == []
