"""Surveys: each fact that stands in the way is found, with what to do about it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from moorage import __version__
from moorage.attach.manifests import objects
from moorage.attach.manifests.identity import labels
from moorage.attach.needed_rights import Right
from moorage.attach.served_objects import ServedObjects
from moorage.attach.survey import (
    Level,
    ServedVersion,
    Survey,
    SurveyedNode,
    engine_problem,
    findings,
    look,
)
from moorage.attach.values import Values
from moorage.wire.client.resources import PartialObject, Resource
from tests.attach.object_server import running

GOOD = Survey(
    version="v1.36.1",
    nodes=(SurveyedNode("n1", "containerd://2.1.4"),),
    served=frozenset(("MutatingWebhookConfiguration", "ValidatingAdmissionPolicy")),
)
PART = {"app.kubernetes.io/part-of": "moorage"}


def survey(**facts: Any) -> Survey:
    fields = {name: getattr(GOOD, name) for name in GOOD.__struct_fields__}
    return Survey(**fields | facts)


def obj(kind: str, **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": "o", **metadata}}


def namespace(**labels: str) -> dict[str, Any]:
    return obj("Namespace", labels=labels)


def problems(facts: Survey, values: Values | None = None) -> list[str]:
    found = findings(facts, values or Values())
    return [finding.text for finding in found if finding.level is Level.PROBLEM]


def test_nothing_stands_in_the_way_of_a_good_cluster() -> None:
    assert findings(GOOD, Values()) == []


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({"version": "v1.29.9"}, "v1.29.9"),
        ({"version": ""}, "unknown version"),
        ({"missing_rights": (Right("list", "", "nodes"),)}, "you may not list nodes"),
        ({"ungranted": (Right("patch", "", "nodes"),)}, "not have yourself: patch nodes"),
        ({"served": frozenset(("ValidatingAdmissionPolicy",))}, "webhook configurations"),
        ({"served": frozenset(("MutatingWebhookConfiguration",))}, "ValidatingAdmissionPolicy"),
        ({"ours": (obj("Deployment", namespace="other"),)}, "another Moorage"),
        (
            {"ours": (obj("ClusterRole", annotations={"meta.helm.sh/release-name": "r"}),)},
            "as release r",
        ),
        (
            {
                "version": "v1.37.0+moorage.0.1.0",
                "ours": (obj("CustomResourceDefinition"),),
            },
            "has all of this inside",
        ),
        (
            {"namespace": namespace(**{"pod-security.kubernetes.io/enforce": "restricted"})},
            "level restricted",
        ),
    ],
)
def test_what_forbids_an_attachment_is_a_problem(facts: dict[str, Any], text: str) -> None:
    found = problems(survey(**facts))
    assert len(found) == 1
    assert text in found[0]


def test_an_api_server_that_was_built_without_its_version_is_warned_about() -> None:
    (found,) = findings(survey(version="v0.0.0-master+8e16b12"), Values())
    assert found.level is Level.WARNING
    assert "v0.0.0-master+8e16b12" in found.text


@pytest.mark.parametrize(
    ("version", "is_newer"),
    [("0.0.9", False), (__version__, False), ("99.0.0", True), ("99.0", True), ("dev", False)],
)
def test_a_way_back_to_an_older_version_is_warned_about(version: str, is_newer: bool) -> None:
    labelled = obj("Deployment", namespace="moorage-system")
    labelled["metadata"]["labels"] = {"app.kubernetes.io/version": version}
    found = findings(
        survey(ours=(obj("DaemonSet", namespace="moorage-system"), labelled)), Values()
    )
    assert [finding.level for finding in found] == [Level.WARNING] * is_newer
    assert all(f"Moorage {version} is attached" in finding.text for finding in found)


def test_kubernetes_1_30_needs_a_feature_gate() -> None:
    (found,) = findings(survey(version="v1.30.14"), Values())
    assert found.level is Level.WARNING
    assert "CustomResourceFieldSelectors" in found.text
    assert findings(survey(version="v1.31.0"), Values()) == []


def test_every_problem_has_a_remedy() -> None:
    worst = Survey(version="v1.20", missing_rights=(Right("get", "", "nodes"),))
    assert all(
        finding.remedy
        for finding in findings(worst, Values(certificates="cert-manager"))
        if finding.level is Level.PROBLEM
    )


def test_definitions_of_an_earlier_attachment_on_our_server_are_no_problem() -> None:
    attached = obj(
        "CustomResourceDefinition",
        managedFields=[{"manager": "moorage-attach", "operation": "Apply"}],
    )
    assert problems(survey(version="v1.37.0+moorage.0.1.0", ours=(attached,))) == []


def test_nothing_is_concluded_from_what_may_not_be_read() -> None:
    facts = Survey(version="v1.36.1", missing_rights=(Right("list", "", "nodes"),))
    facts = msgspec.structs.replace(facts, served=GOOD.served)
    assert [finding.text for finding in findings(facts, Values())] == ["you may not list nodes"]


def test_cert_manager_must_be_there_if_it_is_asked_for() -> None:
    assert "cert-manager" in problems(GOOD, Values(certificates="cert-manager"))[0]
    present = survey(served=GOOD.served | {"Certificate"})
    assert problems(present, Values(certificates="cert-manager")) == []


def test_the_namespace_must_be_there_if_it_is_not_made() -> None:
    assert "does not exist" in problems(GOOD, Values(create_namespace=False))[0]


def test_a_namespace_that_is_being_deleted_is_waited_for() -> None:
    leaving = namespace()
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert problems(survey(namespace=leaving)) == ["namespace moorage-system is being deleted"]


def test_a_namespace_of_others_is_used_with_a_warning() -> None:
    found = findings(survey(namespace=namespace()), Values())
    assert [finding.level for finding in found] == [Level.WARNING]
    assert [
        finding.level for finding in findings(survey(namespace=namespace(**PART)), Values())
    ] == [Level.WARNING]
    assert findings(survey(namespace=namespace(**labels())), Values()) == []


@pytest.mark.parametrize(
    ("engine", "problem"),
    [
        ("containerd://1.6.20", ""),
        ("containerd://2.1.4", ""),
        ("containerd://1.5.9", "too old"),
        ("cri-o://1.37.0", ""),
        ("moorage://0.1.0", ""),
        ("docker://27.0.1", "is not known"),
        ("", "not reported"),
    ],
)
def test_engines(engine: str, problem: str) -> None:
    text = engine_problem(engine)
    assert (problem in text) if problem else text == ""


def test_nodes_without_linux_are_only_noted() -> None:
    facts = survey(nodes=(*GOOD.nodes, SurveyedNode("w", "containerd://2.1", os="windows")))
    assert [finding.level for finding in findings(facts, Values())] == [Level.NOTE]


def test_definitions_that_helm_uninstall_kept_are_no_release() -> None:
    kept = obj("CustomResourceDefinition", annotations={"meta.helm.sh/release-name": "r"})
    assert problems(survey(ours=(kept,))) == []
    assert problems(survey(version="v1.37.0+moorage.0.1.0", ours=(kept,))) == []


def test_parts_that_kubectl_applied_on_our_server_may_be_attached() -> None:
    ours = (obj("CustomResourceDefinition"), obj("Deployment", namespace=Values().namespace))
    assert problems(survey(version="v1.37.0+moorage.0.1.0", ours=ours)) == []


@pytest.mark.parametrize(
    ("served", "text"),
    [
        (ServedVersion("v1.33.5", "1", "33"), "v1.33.5"),
        (ServedVersion("v1.30.14-eks-1", "1", "30+"), "v1.30.14-eks-1"),
        (ServedVersion("v0.0.0-master+8e16", "1", "36"), "v1.36 (v0.0.0-master+8e16)"),
        (ServedVersion("v0.0.0-master+8e16", "1", "29+"), "v1.29+ (v0.0.0-master+8e16)"),
        (ServedVersion("other"), "other"),
    ],
)
def test_a_build_without_tags_has_the_version_of_its_numbers(
    served: ServedVersion, text: str
) -> None:
    assert served.text == text
    assert bool(problems(survey(version=served.text))) == ("1.29" in text)


async def test_a_cluster_is_looked_at() -> None:
    engine = {
        "containerRuntimeVersion": "containerd://2.1.4", "operatingSystem": "linux",
        "kubeletVersion": "v1.36.1",
    }  # fmt: skip
    async with running() as (server, client):
        for name in "abc":
            node = {"metadata": {"name": name}, "status": {"nodeInfo": engine}}
            server.put({"apiVersion": "v1", "kind": "Node", **node})
        for wanted in objects(Values()):
            server.put(wanted)
        unlabelled = {"apiVersion": "apps/v1", "kind": "Deployment"}
        server.put({**unlabelled, "metadata": {"name": "own", "namespace": "moorage-system"}})
        found = await look(ServedObjects(client), Values(), objects(Values()))
        server.remove(namespace() | {"metadata": {"name": "moorage-system"}})
        without = await look(ServedObjects(client), Values(), objects(Values()))
    assert found.version == "v1.36.1"
    assert found.server == client.server
    assert found.nodes == tuple(
        SurveyedNode(name, "containerd://2.1.4", "linux", "v1.36.1") for name in "abc"
    )
    kinds = ("Deployment", "DaemonSet", "CustomResourceDefinition", "ClusterRole")
    assert {(one["kind"], one["metadata"]["name"]) for one in found.ours} == {
        (one["kind"], one["metadata"]["name"])
        for one in objects(Values()) if one["kind"] in kinds
    }  # fmt: skip
    assert found.served >= {"MutatingWebhookConfiguration", "ValidatingAdmissionPolicy", "Secret"}
    assert "Certificate" not in found.served
    assert found.namespace is not None
    assert found.namespace["metadata"]["name"] == "moorage-system"
    assert without.namespace is None
    assert findings(found, Values()) == []


async def test_cert_manager_and_admission_are_looked_for_among_what_is_served() -> None:
    async with running() as (server, client):
        certificate = ("cert-manager.io", "v1", "certificates", "Certificate")
        server.resources = [
            *(one for one in server.resources if one.group != "admissionregistration.k8s.io"),
            Resource(*certificate, PartialObject),
        ]
        found = await look(ServedObjects(client), Values(), [])
    assert "Certificate" in found.served
    assert not found.served & {"MutatingWebhookConfiguration", "ValidatingAdmissionPolicy"}


async def test_without_rights_nothing_more_is_read() -> None:
    async with running() as (server, client):
        server.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})
        server.denied.add(("list", "nodes"))
        found = await look(ServedObjects(client), Values(), [])
    assert found.missing_rights == (Right("list", "", "nodes"),)
    assert (found.nodes, found.ours, found.namespace) == ((), (), None)


@pytest.mark.parametrize(
    ("version", "levels"),
    [
        ("v1.29.0", [Level.PROBLEM]),
        ("v1.30.0", [Level.WARNING]),
        ("v1.31.0", []),
        ("1.31", []),
        ("v1.100.0", []),
        ("", [Level.PROBLEM]),
        ("other", [Level.WARNING]),
    ],
)
def test_versions_have_their_weight(version: str, levels: list[Level]) -> None:
    found = findings(survey(version=version), Values())
    assert [finding.level for finding in found] == levels
    assert all("1.30" in finding.remedy or version == "v1.30.0" for finding in found)


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (("b", "a", "b"), "another Moorage is attached in namespace a, b"),
        (("moorage-system",), ""),
        ((None,), ""),
        (("moorage-system", "c"), "another Moorage is attached in namespace c"),
    ],
)
def test_another_attachment_is_named_by_its_namespaces(
    names: tuple[str | None, ...], text: str
) -> None:
    ours = tuple(obj("Deployment", **({"namespace": name} if name else {})) for name in names)
    found = findings(survey(ours=ours), Values())
    assert [finding.text for finding in found] == ([text] if text else [])
    if text:
        first = text.rpartition("namespace ")[2].partition(",")[0]
        assert found[0].remedy.startswith(f"set namespace={first} ")


@pytest.mark.parametrize(
    ("level", "is_problem"),
    [("privileged", False), ("baseline", True), ("restricted", True), ("", True)],
)
def test_a_namespace_of_others_must_admit_the_agents(level: str, *, is_problem: bool) -> None:
    enforced = {"pod-security.kubernetes.io/enforce": level}
    facts = survey(namespace=namespace(**enforced))
    assert bool(problems(facts)) is is_problem
    ours = survey(namespace=namespace(**enforced, **labels()))
    assert problems(ours) == []


def test_nodes_are_judged_one_by_one_and_problems_come_first() -> None:
    nodes = (
        SurveyedNode("w", "containerd://2.1", os="windows"),
        SurveyedNode("old", "containerd://1.5.9"),
        SurveyedNode("unsaid", "containerd://1.6.0", os=""),
        SurveyedNode("silent", ""),
    )
    found = findings(survey(nodes=nodes, version="v1.20.0"), Values())
    assert [(one.level, one.text.partition(":")[0]) for one in found] == [
        (Level.PROBLEM, "the API server is v1.20.0"),
        (Level.WARNING, "node old"),
        (Level.WARNING, "node silent"),
        (Level.NOTE, "node w runs windows"),
    ]
    (only,) = findings(survey(nodes=nodes[:1]), Values())[:1]
    assert (only.level, "no node that runs Linux" in only.text) == (Level.WARNING, True)


@pytest.mark.parametrize(
    ("engine", "is_known"),
    [
        ("containerd://1.6.0", True),
        ("containerd://v1.6.0", True),
        ("containerd://1.5.99", False),
        ("cri-o://1.20.0", True),
        ("cri-o://1.19.9", False),
        ("moorage://0.0.0", True),
        ("containerd", False),
    ],
)
def test_engines_are_known_from_a_version_on(engine: str, *, is_known: bool) -> None:
    assert (engine_problem(engine) == "") is is_known


def test_our_server_is_known_by_its_version() -> None:
    assert survey(version="v1.37.0+moorage.0.1.0").is_our_server
    assert not GOOD.is_our_server
    assert problems(survey(version="v1.37.0+moorage.0.1.0")) == []
    assert problems(survey(ours=(obj("CustomResourceDefinition"),))) == []
