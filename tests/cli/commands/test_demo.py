"""`moor demo`: its steps, also when one fails, and what it prints of the pods."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from moorage.api.runtime_group import (
    SUPPORTED,
    UNSUPPORTED,
    ProfileFeature,
    RuntimeProfile,
    RuntimeProfileSpec,
    RuntimeProfileStatus,
)
from moorage.cluster.cluster import ClusterActions
from moorage.cluster.errors import StartError
from moorage.cluster.layout import Layout
from moorage.cluster.reservations import Reservations
from moorage.cluster.settings import Choices, Settings, save
from moorage.engine.handlers import Handler
from moorage.inspect.demo import DemoError, DemoRow
from moorage.inspect.demo_network import NetworkShown
from moorage.inspect.demo_runtimes import FoundClass, RuntimesShown
from moorage.runtimeclass.features import FEATURES
from tests.cli.moor import FakeFactory, NoApi
from tests.cluster.test_settings import SETTINGS

ROWS = [
    DemoRow("a", "Running", "gvisor", "runsc", "n1", "10.0.0.2", "4.4", "gVisor", 1.234),
    DemoRow("b", "Refused", "", "kata", "", "", "", "", None, "no such handler"),
    DemoRow("c", "Refused", "", "kata", "", "", "", "", None, "no such handler"),
    DemoRow("d", "Refused", "", "runc", "", "", "", "", None, "too old"),
    DemoRow("e", "Refused", "", "none", "", "", "", "", None, "unknown"),
]
HANDLERS = (
    Handler(handler="kata", runtime="kata", available=False, reason="no KVM", remedy="turn it on"),
    Handler(handler="runc", runtime="runc", available=True, reason="x", remedy="y"),
)


def _profile(handler: str, statx: str) -> RuntimeProfile:
    features = [ProfileFeature(name=name, state=SUPPORTED) for name in FEATURES]
    position = list(FEATURES).index("syscall-statx")
    features[position] = ProfileFeature(name="syscall-statx", state=statx)
    return RuntimeProfile(
        spec=RuntimeProfileSpec(node_name="n1", handler=handler),
        status=RuntimeProfileStatus(features=tuple(features)),
    )


class Stage(FakeFactory, ClusterActions):
    """The steps in order; `failure` comes at the start of the cluster or in the demo."""

    def __init__(self) -> None:
        super().__init__(actions=self)
        self.levels: list[str] = []
        self.handlers: tuple[Handler, ...] = HANDLERS
        self.steps: list[object] = []
        self.start_failure: Exception | None = None
        self.failure: Exception | None = None
        self.root = Path()

    def euid(self) -> int:
        # Not root's, whose parent directory is /var/lib.
        return 1000

    def configure_logs(self, level: str) -> None:
        self.levels.append(level)

    def open_client(self, *_: object) -> Any:
        return NoApi()

    async def require_machine(
        self, layout: Layout, *, is_installing: bool, report: Callable[[str], None] | None
    ) -> tuple[Handler, ...]:
        del report
        self.root = layout.root
        assert self.root.is_dir()
        self.steps.append(("prepare", is_installing))
        return self.handlers

    def open_cluster(
        self, layout: Layout, choices: Choices, reservations: Reservations
    ) -> Settings:
        self.reservations = reservations
        self.steps.append(("opened", choices.given()))
        save(layout.settings, SETTINGS)
        return SETTINGS

    async def start_supervisor(
        self, _layout: Layout, within_s: float, reservations: Reservations | None
    ) -> None:
        assert reservations is self.reservations
        self.steps.append("start")
        assert within_s > 60
        if self.start_failure is not None:
            raise self.start_failure

    def demo(self, client: Any, manifests: list[Any], report: Callable[[str], None]) -> Any:
        assert isinstance(client, NoApi)
        self.steps.append(("run", len(manifests) > 0))
        report("shown")
        return self

    async def run(self) -> list[DemoRow]:
        if self.failure is not None:
            raise self.failure
        return ROWS

    async def stop_supervisor(self, layout: Layout) -> bool:
        assert layout.root == self.root
        self.steps.append("stop")
        return True

    async def clear_host(self, _layout: Layout, settings: Settings, *, abandons_pods: bool) -> None:
        assert not abandons_pods
        self.steps.append(("clear", settings.cluster_id, self.root.is_dir()))

    async def show_runtimes(self, _client: object, report: Callable[[str], None]) -> RuntimesShown:
        report("found")
        return RuntimesShown(
            classes=(FoundClass("gvisor", "runsc", "user-space-kernel"),),
            refusal="below the floor",
            fitted_class="gvisor",
            fitted_reason="the cheapest",
        )

    async def show_network(
        self, _client: object, runtime_class: str, report: Callable[[str], None]
    ) -> NetworkShown:
        report("connected")
        return NetworkShown(runtime_class, "hello", "no route")

    async def read_features(self, _client: object, within_s: float) -> tuple[RuntimeProfile, ...]:
        assert within_s > 0
        return (_profile("crun", SUPPORTED), _profile("runsc", UNSUPPORTED))


@pytest.fixture
def stage() -> Iterator[Stage]:
    stage = Stage()
    yield stage
    assert set(stage.levels) <= {"warning"}
    assert not stage.root.is_dir() or stage.root == Path()


STEPS = [
    ("prepare", False), ("opened", {"name": "moorage-demo"}), "start", ("run", True),
    "stop", ("clear", SETTINGS.cluster_id, True),
]  # fmt: skip


def test_the_whole_path_ends_with_a_table_and_why_some_do_not_run(stage: Stage) -> None:
    answer = stage.moor("demo")
    assert (answer.status, answer.err) == (0, "")
    assert stage.steps == STEPS
    steps, table, refused, following = answer.out.split("\n\n")
    assert [line.split("s  ", 1)[1] for line in steps.splitlines()] == [
        "starting a cluster", "cluster ready", "found", "connected", "shown", "stopped the cluster",
    ]  # fmt: skip
    assert all(0 <= float(line.split()[0]) < 60 for line in steps.splitlines())
    assert table.splitlines()[:3] == [
        "POD   STATUS    CLASS    HANDLER   NODE   IP         KERNEL   INSIDE   START",
        "a     Running   gvisor   runsc     n1     10.0.0.2   4.4      gVisor   1.23 s",
        "b     Refused   (none)   kata      -      -          -        -        -",
    ]
    assert refused.splitlines() == [
        "kata: no such handler", "  no KVM → turn it on", "none: unknown", "runc: too old",
    ]  # fmt: skip
    counted, title, *commands = following.splitlines()
    assert counted.endswith("features are not in every runtime above.")
    assert title == "Next, on a cluster that stays:"
    assert [line.split()[:2] for line in commands] == [
        ["moor", "up"], ["moor", "run"], ["moor", "runtimes"], ["moor", "explain"],
    ]  # fmt: skip


def test_it_says_what_fails_under_the_runtimes_that_it_showed(stage: Stage) -> None:
    gvisor = Handler(
        handler="runsc", runtime="runsc", available=True, version="2022", defect="`ls` fails",
        defect_remedy="get a newer one",
    )  # fmt: skip

    stage.handlers = (*HANDLERS, gvisor)
    warnings = [line for line in stage.moor("demo").out.splitlines() if "warning" in line]
    assert warnings == ["warning: classes of handler runsc (2022): `ls` fails; get a newer one"]


def test_a_document_is_all_that_is_printed(stage: Stage) -> None:
    answer = stage.moor("demo", "--install", "-o", "json")
    document = json.loads(answer.out)
    rows = document["pods"]
    assert [row["pod"] for row in rows] == list("abcde")
    assert rows[0]["start_s"] == 1.234
    assert document["classes"] == [
        {"name": "gvisor", "handler": "runsc", "isolation": "user-space-kernel"}
    ]
    assert document["refusal"] == "below the floor"
    assert document["fitted"] == {"class": "gvisor", "reason": "the cheapest"}
    statx = next(row for row in document["features"] if row["feature"] == "syscall-statx")
    assert statx == {"feature": "syscall-statx", "crun": "Supported", "runsc": "Unsupported"}
    assert stage.steps[0] == ("prepare", True)


@pytest.mark.parametrize("at_start", [True, False])
@pytest.mark.parametrize("error", [DemoError("why"), KeyError("why")])
def test_after_a_failure_everything_is_taken_down(
    stage: Stage, at_start: bool, error: Exception
) -> None:
    if at_start:
        stage.start_failure = StartError("why") if isinstance(error, DemoError) else error
    else:
        stage.failure = error
    if isinstance(error, KeyError):
        with pytest.raises(KeyError):
            stage.moor("demo")
    else:
        answer = stage.moor("demo", "-o", "json")
        assert (answer.status, answer.err, answer.out) == (1, "moor: why\n", "")
    assert stage.steps == [step for step in STEPS if not (at_start and step == ("run", True))]


def test_invalid_examples_are_an_error_before_anything_starts(stage: Stage, tmp_path: Path) -> None:
    assert "there are no examples" in stage.moor("demo", "--examples", tmp_path).err
    (tmp_path / "a.yaml").write_text("kind: [")
    answer = stage.moor("demo", "--examples", tmp_path)
    assert answer.status == 1
    assert "a.yaml" in answer.err
    assert stage.steps == []
