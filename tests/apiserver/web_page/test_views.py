"""Views of the web page: tables from the objects of the API."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from moorage.api.runtime_group import RuntimeClass, RuntimeProfile
from moorage.apiserver.web_page.objects import (
    MOST_PODS,
    NO_CLASS,
    EventRow,
    NodeRow,
    PodRow,
    PodTally,
    SmallProfiles,
    small_class,
    small_event,
    small_node,
)
from moorage.apiserver.web_page.templates import Templates
from moorage.apiserver.web_page.views import (
    MOST_CLASSES,
    MOST_HANDLERS,
    MOST_NODES,
    HandlerCell,
    class_rows,
    overview,
)


def runtime_class(name: str, handler: str, labels: dict[str, str] | None = None) -> RuntimeClass:
    return msgspec.convert(
        {"metadata": {"name": name, "labels": labels or {}}, "handler": handler}, RuntimeClass
    )


def node(name: str, *handlers: str) -> NodeRow:
    listed = [{"name": handler} for handler in handlers]
    return msgspec.convert(
        {"metadata": {"name": name}, "status": {"runtimeHandlers": listed}}, NodeRow
    )


def profile(node_name: str, handler: str, **status: Any) -> RuntimeProfile:
    return msgspec.convert(
        {
            "metadata": {"name": f"{node_name}.{handler}"},
            "spec": {"nodeName": node_name, "handler": handler},
            "status": status,
        },
        RuntimeProfile,
    )


def working(status: str, message: str = "") -> list[dict[str, str]]:
    return [{"type": "Working", "status": status, "reason": "Probed", "message": message}]


def pod(name: str, class_name: str | None = None, phase: str = "Running") -> PodRow:
    return msgspec.convert(
        {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"runtimeClassName": class_name},
            "status": {"phase": phase},
        },
        PodRow,
    )


def tallied(*pods: PodRow) -> Mapping[str, Counter[str]]:
    tally = PodTally()
    for each in pods:
        tally.add(each)
    return tally.counts()


def test_phases_of_a_nodes_own_making_are_counted_as_one() -> None:
    pods = [pod(f"p{number}", phase=f"Phase{number}") for number in range(100)]
    assert dict(tallied(*pods, pod("q", phase=""))[NO_CLASS]) == {"Unknown": 100, "Pending": 1}


def test_pods_are_counted_by_class_and_phase() -> None:
    rows = class_rows(
        [runtime_class("sandboxed", "gvisor"), runtime_class("native", "runc")],
        [node("n1", "gvisor", "runc"), node("n2", "runc")],
        [],
        tallied(
            pod("a", "native"),
            pod("b", "native", "Pending"),
            pod("c"),
            pod("d", "legacy"),
            pod("e", "gone"),
        ),
    )
    assert [(row.name, row.is_there, dict(row.pods), row.nodes) for row in rows] == [
        ("native", True, {"Pending": 1, "Running": 1}, ("n1", "n2")),
        ("sandboxed", True, {}, ("n1",)),
        ("gone", False, {"Running": 1}, ()),
        (NO_CLASS, False, {"Running": 2}, ()),
    ]


def test_the_isolation_is_the_label_or_what_all_probes_found() -> None:
    probes = [
        profile("n1", "a", isolation="shared-kernel"),
        profile("n2", "a", isolation="shared-kernel"),
        profile("n1", "b", isolation="shared-kernel"),
        profile("n2", "b", isolation="virtual-machine"),
    ]
    rows = class_rows(
        [
            runtime_class("a", "a"),
            runtime_class("b", "b"),
            runtime_class("c", "a", {"runtime.moorage.dev/isolation": "virtual-machine"}),
        ],
        [], probes, {},
    )  # fmt: skip
    assert [row.isolation for row in rows] == ["shared-kernel", "", "virtual-machine"]


def test_a_handler_whose_probe_failed_is_broken_with_its_reason() -> None:
    view = overview(
        [runtime_class("b", "bad")],
        [node("n1", "", "good"), node("n2")],
        [
            profile("n1", "bad", conditions=working("False", "no answer within 5 s")),
            profile(
                "n1", "good", conditions=working("True"), program={"name": "crun", "version": "1.8"}
            ),
        ],
        {},
    )
    assert view.handlers == ("", "bad", "good")
    assert view.nodes == (
        ("n1", (
            HandlerCell("listed"),
            HandlerCell("broken", "no answer within 5 s"),
            HandlerCell("working", "crun 1.8"),
        )),
        ("n2", (HandlerCell(), HandlerCell(), HandlerCell())),
    )  # fmt: skip
    assert view.classes[0].broken == ("n1",)


def test_what_ordinary_programs_cannot_do_under_a_handler_is_a_warning() -> None:
    refused = {"name": "syscall-statx", "state": "Unsupported", "message": "statx: EINVAL"}
    fine = {"name": "syscall-statx", "state": "Supported"}
    profiles = [profile("n1", "gvisor", features=[refused]), profile("n1", "crun", features=[fine])]
    view = overview([], [node("n1", "gvisor", "crun")], profiles, {})
    assert [(warning.handler, warning.node) for warning in view.warnings] == [("gvisor", "n1")]
    assert view.warnings[0].sentence.startswith("statx: EINVAL, so `ls` and `stat` of Debian 12")
    page = Templates().render("overview.html", view=view, root="", missing=()).decode()
    assert "classes of handler <code>gvisor</code>: statx: EINVAL, so `ls`" in page


def test_nodes_with_the_same_findings_share_a_column() -> None:
    def found(state: str) -> list[dict[str, str]]:
        return [{"name": "syscall-statx", "state": state}, {"name": "terminal", "state": "Unknown"}]

    view = overview(
        [], [],
        [
            profile("n1", "gvisor", features=found("Unsupported")),
            profile("n2", "gvisor", features=found("Unsupported")),
            profile("n3", "gvisor", features=found("Supported")),
            profile("n1", "unprobed"),
        ],
        {},
    )  # fmt: skip
    assert [column.metadata.name for column in view.columns] == ["n1.gvisor", "n3.gvisor"]
    shown = {row.feature.name: [cell.state for cell in row.cells]
             for section in view.sections for row in section.rows}  # fmt: skip
    assert shown == {
        "terminal": ["Unknown", "Unknown"],
        "syscall-statx": ["Unsupported", "Supported"],
    }
    assert view.sections[-1].count("Supported") == 1


def test_a_list_of_pods_is_bounded() -> None:
    tally = PodTally(NO_CLASS)
    for number in reversed(range(3 * MOST_PODS + 1)):
        tally.add(pod(f"p{number:04}"))
        tally.add(pod(f"q{number:04}", "gvisor"))
    names = [shown.metadata.name for shown in tally.first()]
    assert (len(names), names[0], names[-1]) == (MOST_PODS, "p0000", f"p{MOST_PODS - 1:04}")
    assert tally.counts()["gvisor"] == {"Running": 3 * MOST_PODS + 1}


def test_objects_of_a_megabyte_become_small_as_they_are_read() -> None:
    long, small = "x" * 1_000_000, 8 * 1024
    event = EventRow(type=long, reason=long, message=long, last_timestamp=long, event_time=long)
    assert len(msgspec.json.encode(small_event(event))) < small
    liar = small_node(node("liar", *(f"{number}{long[:9_000]}" for number in range(200))))
    assert len(msgspec.json.encode(liar)) < 4 * small
    heavy = runtime_class("c", "h", {"a": long, "runtime.moorage.dev/managed": "true"})
    assert small_class(heavy).metadata.labels == {"runtime.moorage.dev/managed": "true"}


def test_a_node_has_a_bounded_number_of_small_profiles_and_the_same_findings_once() -> None:
    sizes = SmallProfiles()
    features = [{"name": name, "state": "Supported", "message": "x" * 5_000}
                for name in ("terminal", *map(str, range(1_000)))]  # fmt: skip
    conditions = [*working("True", "x" * 5_000), *[{"type": "x", "message": "x" * 5_000}] * 10]
    kept = [
        small
        for number in range(1_000)
        if (small := sizes.small(
            profile("liar", f"h{number}", features=features, conditions=conditions)
        ))
    ]  # fmt: skip
    assert len(kept) == 100
    assert max(len(msgspec.json.encode(one)) for one in kept) < 1_024
    assert kept[0].status.features is kept[1].status.features
    assert sizes.small(profile("honest", "runc")) is not None


def test_tables_are_bounded_whatever_a_node_reports() -> None:
    liar = node("liar", *(f"0{number}" for number in range(20_000)), *["runc"] * 20_000)
    nodes = [liar, *(node(f"n{number:04}", "runc") for number in range(MOST_NODES))]
    profiles = [
        profile("liar", f"0{number}", conditions=working("False", "x" * 5_000), features=[
            {"name": "terminal", "state": "Supported", "message": "x" * 5_000}])
        for number in range(MOST_HANDLERS + 5)
    ]  # fmt: skip
    classes = [runtime_class(f"c{number:04}", "runc") for number in range(MOST_CLASSES + 1)]
    view = overview(classes, nodes, profiles, {})
    # What most nodes have is shown.
    assert (len(view.handlers), view.handlers[-1]) == (MOST_HANDLERS, "runc")
    assert view.left_out == {"classes": 1, "nodes": 1, "handlers": 19_951, "columns": 5}
    assert len(view.classes) == MOST_CLASSES
    assert view.classes[0].nodes is view.classes[1].nodes
    assert len(view.classes[0].nodes) == len(nodes)
    assert {len(cells) for _, cells in view.nodes} == {MOST_HANDLERS}
    assert max(len(cell.detail) for _, cells in view.nodes for cell in cells) < 250
    page = Templates().render("overview.html", root="", view=view, missing=[])
    assert len(page) < 4 * 1024 * 1024
    assert b"19951 more handlers are left out" in page


def test_classes_of_probes_are_left_out() -> None:
    name = "moorage-probe-runc.n1"
    classes = [runtime_class(name, "runc"), runtime_class("runc", "runc")]
    shown = overview(classes, [], [], tallied(pod("p", name), pod("q", "runc")))
    assert [row.name for row in shown.classes if row.name] == ["runc"]
