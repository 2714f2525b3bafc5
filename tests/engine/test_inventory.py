"""The inventory: ids that may be shortened, names held by one, records behind both."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.logs import LineFormatter
from moorage.engine.errors import InvalidError, NotFoundError, PreconditionError
from moorage.engine.handlers.adapters import Exit, Task
from moorage.engine.handlers.features import HandlerFeatures
from moorage.engine.inventory import Container, Inventory, Sandbox, new_id
from moorage.engine.labels import has_labels
from moorage.engine.paths import EnginePaths
from moorage.engine.records import ContainerRecord, SandboxRecord, Stage, User
from moorage.wire.cri import pb
from tests.engine.test_records import definition, fill_disk


def sandbox(sandbox_id: str = "", name: str = "web", attempt: int = 0) -> Sandbox:
    metadata = pb.PodSandboxMetadata(name=name, namespace="ns", uid="u", attempt=attempt)
    record = SandboxRecord(
        id=sandbox_id or new_id(),
        config=pb.PodSandboxConfig(metadata=metadata).SerializeToString(),
        handler="runc",
        definition=definition(),
        program=Path("/usr/bin/runc"),
        features=HandlerFeatures(),
        created_at_ns=1,
    )
    return Sandbox(record)


def container(above: Sandbox, container_id: str = "", name: str = "main") -> Container:
    config = pb.ContainerConfig(metadata=pb.ContainerMetadata(name=name))
    record = ContainerRecord(
        id=container_id or new_id(),
        sandbox_id=above.id,
        config=config.SerializeToString(),
        image_id="",
        image_ref="",
        created_at_ns=1,
        user=User(0, 0),
    )
    return Container(record, above)


@pytest.fixture
def paths(tmp_path: Path) -> EnginePaths:
    paths = EnginePaths(tmp_path / "d", tmp_path / "r")
    paths.prepare()
    return paths


def test_an_id_may_be_shortened_while_it_means_one(paths: EnginePaths) -> None:
    inventory = Inventory(paths)
    for sandbox_id in ("ab12", "ab34", "ab"):
        one = sandbox(sandbox_id, name=sandbox_id)
        inventory.save_sandbox(one, one.record)
    assert inventory.sandboxes.find("ab1").id == "ab12"
    # A whole id counts before what it begins.
    assert inventory.sandboxes.find("ab").id == "ab"
    with pytest.raises(InvalidError, match="3 sandbox ids match prefix 'a'"):
        inventory.sandboxes.find("a")
    with pytest.raises(NotFoundError, match="sandbox 'zz' not found"):
        inventory.sandboxes.find("zz")
    with pytest.raises(NotFoundError):
        inventory.sandboxes.find("")


@given(st.sets(st.text("01", min_size=6, max_size=6), min_size=1, max_size=12), st.data())
def test_a_prefix_finds_exactly_what_it_begins(ids: set[str], data: st.DataObject) -> None:
    inventory = Inventory(EnginePaths(Path("/d"), Path("/r")))
    for id_ in ids:
        inventory.sandboxes.add(sandbox(id_, name=id_))
    prefix = data.draw(st.text("01", min_size=1, max_size=6))
    alike = {known for known in ids if known.startswith(prefix)}
    try:
        result = inventory.sandboxes.get(prefix)
    except InvalidError:
        assert len(alike) > 1
        return
    assert {result.id} == alike if result else not alike


def test_a_name_is_held_while_making_and_until_removal(paths: EnginePaths) -> None:
    inventory = Inventory(paths)
    one, other = sandbox("a1"), sandbox("b2")
    shelf = inventory.sandboxes
    with shelf.reserved(one.name, one.id):
        with (
            pytest.raises(PreconditionError, match="reserved for 'a1'"),
            shelf.reserved(other.name, other.id),
        ):
            pytest.fail("the name is taken")
        inventory.save_sandbox(one, one.record)
    with (
        pytest.raises(PreconditionError, match="reserved for 'a1'"),
        shelf.reserved(other.name, other.id),
    ):
        pytest.fail("the name is taken")
    with shelf.reserved(sandbox("c3", attempt=1).name, "c3"):
        pass
    inventory.delete_sandbox(one)
    with shelf.reserved(other.name, other.id):
        pass


def test_a_name_is_free_again_when_making_failed(paths: EnginePaths) -> None:
    shelf = Inventory(paths).sandboxes
    one = sandbox()
    with pytest.raises(ZeroDivisionError), shelf.reserved(one.name, one.id):
        raise ZeroDivisionError
    with shelf.reserved(one.name, "other"):
        pass


def test_everything_is_there_again_in_a_new_inventory(paths: EnginePaths) -> None:
    first = Inventory(paths)
    one, half = sandbox("a1"), sandbox("b2", name="half")
    ended, orphan = container(one, "c1"), container(sandbox("gone"), "c2")
    first.save_sandbox(one, one.record)
    first.save_incomplete(half)
    for record in (ended, orphan):
        first.save_container(record, record.record)
    exit_ = Exit(3, 5)
    first.save_exited_container(
        ended, msgspec.structs.replace(ended.record, stage=Stage.EXITED, exit=exit_)
    )
    second = Inventory(paths)
    second.load()
    assert [sandbox.id for sandbox in second.sandboxes] == ["a1"]
    assert [half_made.id for half_made in second.incomplete] == ["b2"]
    (result,) = second.containers
    assert (result.id, result.record.exit, result.exited.is_set()) == ("c1", exit_, True)
    assert second.containers_of(result.sandbox) == [result]
    assert result.name == ("a1", "main", 0)
    # A half-made sandbox holds no name, and one without its sandbox is forgotten on disk too.
    assert not (paths.container_records / "c2.json").exists()


def test_a_pod_has_the_namespaces_that_it_does_not_share_with_the_host(paths: EnginePaths) -> None:
    own = sandbox()
    directory = paths.namespaces / own.id
    context = own.spec_context(paths)
    assert (context.netns, context.utsns, context.ipcns, context.userns) == (
        f"{directory}/net", f"{directory}/uts", f"{directory}/ipc", "",
    )  # fmt: skip
    ids = [pb.IDMapping(host_id=100_000, container_id=0, length=65_536)]
    users = pb.UserNamespace(mode=pb.POD, uids=ids, gids=ids)
    config = own.config
    config.linux.security_context.namespace_options.userns_options.CopyFrom(users)
    record = msgspec.structs.replace(own.record, config=config.SerializeToString())
    assert Sandbox(record).spec_context(paths).userns == f"{directory}/user"


def test_an_end_counts_though_the_disk_is_full(
    paths: EnginePaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    inventory = Inventory(paths)
    one = sandbox("a1")
    inventory.save_sandbox(one, one.record)
    fill_disk(monkeypatch)
    inventory.save_stopped_sandbox(one, msgspec.structs.replace(one.record, is_ready=False))
    assert not one.record.is_ready


def test_the_life_of_a_pod_is_logged(paths: EnginePaths, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    inventory = Inventory(paths)
    pod = sandbox("s")
    main = container(pod, "c")
    inventory.save_sandbox(pod, pod.record)
    inventory.save_container(main, main.record)
    inventory.update_container(main, stage=Stage.STARTING)
    inventory.update_container(main, stage=Stage.RUNNING)
    # A change of the configuration alone is no event of its life.
    inventory.update_container(main, config=main.record.config)
    exited = msgspec.structs.replace(
        main.record, stage=Stage.EXITED, exit=Exit(137, 5, is_out_of_memory=True),
        reason="OOMKilled",
    )  # fmt: skip
    inventory.save_exited_container(main, exited)
    inventory.delete_container(main)
    inventory.save_stopped_sandbox(pod, msgspec.structs.replace(pod.record, is_ready=False))
    inventory.delete_sandbox(pod)
    lines = [LineFormatter().format(record).split(" ", 3)[3] for record in caplog.records]
    assert lines == [
        "sandbox created pod=ns/web uid=u sandbox=s handler=runc runtime=/usr/bin/runc",
        "container created pod=ns/web name=main container=c",
        "container running pod=ns/web name=main container=c",
        "container exited pod=ns/web name=main container=c reason=OOMKilled code=137",
        "container removed pod=ns/web name=main container=c",
        "sandbox stopped pod=ns/web sandbox=s",
        "sandbox removed pod=ns/web sandbox=s",
    ]


@pytest.mark.parametrize(
    ("labels", "wanted", "expected"),
    [
        ({}, {}, True),
        ({"a": "1"}, {}, True),
        ({"a": "1", "b": "2"}, {"a": "1"}, True),
        ({"a": "1"}, {"a": "2"}, False),
        ({"a": "1"}, {"a": "1", "b": "2"}, False),
        ({}, {"a": ""}, False),
    ],
)
def test_labels_are_wanted_all_and_equal(
    labels: dict[str, str], wanted: dict[str, str], expected: bool
) -> None:
    assert has_labels(labels, wanted) == expected


@pytest.mark.parametrize("name", ["tty", "stdin", "stdin_once"])
def test_a_containers_task_has_its_streams(paths: EnginePaths, name: str) -> None:
    one = container(sandbox("a1"), "c1")
    assert one.task(paths) == Task(
        id="c1",
        bundle=paths.bundle("c1"),
        sandbox_id="a1",
        log=None,
        has_terminal=False,
        has_stdin=False,
        is_stdin_once=False,
        has_user_namespace=False,
    )
    setattr(one.config, name, True)
    one.record = msgspec.structs.replace(one.record, log_path="/logs/main.log")
    task = one.task(paths)
    assert task.log == Path("/logs/main.log")
    assert {
        "tty": task.has_terminal, "stdin": task.has_stdin, "stdin_once": task.is_stdin_once,
    } == {"tty": False, "stdin": False, "stdin_once": False, name: True}  # fmt: skip


def test_recovered_item_keeps_its_name_reserved() -> None:
    inventory = Inventory(EnginePaths(Path("/d"), Path("/r")))
    one = sandbox("aa", name="web")
    inventory.sandboxes.add(one)
    with (
        pytest.raises(PreconditionError, match="'web_ns_u_0': it is reserved for 'aa'"),
        inventory.sandboxes.reserved(one.name, "bb"),
    ):
        raise AssertionError("two sandboxes of one name")
    inventory.sandboxes.discard(one)
    with inventory.sandboxes.reserved(one.name, "bb"):
        assert inventory.sandboxes.get("bb") is None
