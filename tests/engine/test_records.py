"""Records on disk: they come back as they were, and a damaged one harms no other."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.engine import records
from moorage.engine.errors import ExhaustedError
from moorage.engine.handlers.adapters import Exit
from moorage.engine.handlers.definition import HandlerDefinition, parse_definition
from moorage.engine.handlers.features import HandlerFeatures
from moorage.engine.networks import CniResult
from moorage.engine.records import ContainerRecord, RecordDirectory, SandboxRecord, Stage, User

ids = st.text("0123456789abcdef", min_size=1, max_size=8)
moments = st.integers(0, (1 << 63) - 1)
texts = st.text(max_size=10)


def definition(text: bytes = b'adapter = "oci"\nbinary = "runc"\n') -> HandlerDefinition:
    return parse_definition(Path("/h/runc.toml"), text)


containers = st.builds(
    ContainerRecord,
    id=ids,
    sandbox_id=ids,
    config=st.binary(max_size=20),
    image_id=texts,
    image_ref=texts,
    created_at_ns=moments,
    user=st.builds(User, uid=moments, gid=moments, groups=st.tuples(moments)),
    stage=st.sampled_from(list(Stage)),
    exit=st.none() | st.builds(Exit, st.integers(0, 255), moments, st.booleans()),
    reason=texts,
    message=texts,
    image_mounts=st.lists(texts, max_size=2).map(tuple),
)
definitions = st.sampled_from(
    [
        b'adapter = "oci"\nbinary = "runc"\n[options]\nglobal_arguments = ["--debug"]\n',
        b'adapter = "runsc"\nbinary = "runsc"\n[options]\nplatform = "ptrace"\n',
        b'adapter = "shim"\nbinary = "shim"\n[options]\nruntime_type = "io.containerd.kata.v2"\n',
    ]
).map(definition)
sandboxes = st.builds(
    SandboxRecord,
    id=ids,
    config=st.binary(max_size=20),
    handler=texts,
    definition=definitions,
    program=st.just(Path("/usr/bin/runc")),
    features=st.builds(HandlerFeatures),
    created_at_ns=moments,
    is_complete=st.booleans(),
    is_ready=st.booleans(),
    cni_result=st.none()
    | st.builds(CniResult, ids, texts, st.just({"a": [1]}), st.just({"b": "c"}), texts),
    task_pid=st.integers(0, 1 << 22),
)


@given(containers)
def test_a_containers_record_comes_back(
    tmp_path_factory: pytest.TempPathFactory, record: ContainerRecord
) -> None:
    directory = RecordDirectory(tmp_path_factory.mktemp("c"), ContainerRecord)
    directory.save(record)
    assert list(directory.load()) == [record]
    directory.remove(record.id)
    directory.remove(record.id)
    assert not list(directory.load())


@given(sandboxes)
def test_a_sandboxes_record_comes_back(
    tmp_path_factory: pytest.TempPathFactory, record: SandboxRecord
) -> None:
    directory = RecordDirectory(tmp_path_factory.mktemp("s"), SandboxRecord)
    directory.save(record)
    assert list(directory.load()) == [record]


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"{}", b'{"id": 5}', b"\xff\xfe", b"null"])
def test_a_damaged_record_is_left_and_the_others_are_read(tmp_path: Path, text: bytes) -> None:
    directory = RecordDirectory(tmp_path, ContainerRecord)
    good = ContainerRecord(
        id="b",
        sandbox_id="s",
        config=b"",
        image_id="",
        image_ref="",
        created_at_ns=1,
        user=User(0, 0),
    )
    directory.save(good)
    damaged = tmp_path / "a.json"
    damaged.write_bytes(text)
    unfinished = tmp_path / "c.new"
    unfinished.write_bytes(b"{")
    assert list(directory.load()) == [good]
    assert damaged.exists()
    assert not unfinished.exists()


def fill_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answer every write of a record as a full disk does, without a disk to fill."""

    def replace(path: Path, _content: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(records, "replace_file", replace)


def test_a_full_disk_is_its_own_error_and_keeps_the_record_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = ContainerRecord(
        id="b",
        sandbox_id="s",
        config=b"",
        image_id="",
        image_ref="",
        created_at_ns=1,
        user=User(0, 0),
    )
    directory = RecordDirectory(tmp_path, ContainerRecord)
    directory.save(record)
    fill_disk(monkeypatch)
    with pytest.raises(ExhaustedError, match="no space left for records"):
        directory.save(record)
    assert list(directory.load()) == [record]


def test_the_fields_on_disk_keep_the_names_that_earlier_engines_wrote(tmp_path: Path) -> None:
    directory = RecordDirectory(tmp_path, SandboxRecord)
    record = SandboxRecord(
        id="s",
        config=b"",
        handler="",
        definition=definition(),
        program=Path("/usr/bin/runc"),
        features=HandlerFeatures(),
        created_at_ns=1,
        is_complete=False,
        cni_result=CniResult("s", "{}", {"portMappings": []}, {"K8S_POD_NAME": "web"}, "{}"),
    )
    directory.save(record)
    fields = json.loads((tmp_path / "s.json").read_text())
    assert fields["is_made"] is False
    assert fields["attachment"] == {
        "id": "s",
        "network": "{}",
        "arguments": {"portMappings": []},
        "words": {"K8S_POD_NAME": "web"},
        "result": "{}",
    }
