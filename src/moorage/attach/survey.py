"""Survey of a cluster before an attachment: facts, and obstacles with remedies.

`look` reads facts; `findings` decides purely what they mean. Problems stop an attachment, warnings
do not; each has a remedy.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from moorage import __version__
from moorage.api.meta import Object, Raw
from moorage.attach.belongings import is_labelled
from moorage.attach.changes import is_attached
from moorage.attach.class_uses import is_of_release, releases_of
from moorage.attach.manifests import DEFINITION, KINDS
from moorage.attach.manifests.identity import OURS, VERSION_LABEL, Obj
from moorage.attach.needed_rights import (
    Kind,
    Reviewer,
    Right,
    attach_rights,
    bound_roles,
    described,
    grants,
    rules_of,
    served_resources,
)
from moorage.attach.served_objects import ServedObjects
from moorage.attach.values import CERT_MANAGER, Values
from moorage.wire.client.resources import NODES, Resource

LEAST_MINOR = 30
"""Kubernetes 1.30: admission policies know the node of a node's ServiceAccount token from then."""

_OWN_SERVER = "+moorage"
_ADMISSION = "admissionregistration.k8s.io/v1"
_POLICIES = "ValidatingAdmissionPolicy"
_CERT_MANAGER_VERSION = "cert-manager.io/v1"
_ENFORCE = "pod-security.kubernetes.io/enforce"
_MINOR = re.compile(r"v?1\.(\d+)")
_ADMINISTRATOR = (
    "attach as an administrator of the cluster: a user with the ClusterRole cluster-admin"
)
_ENGINE = re.compile(r"([a-z0-9-]+)://v?(.+)")
_LEAST_ENGINES = {"containerd": (1, 6), "cri-o": (1, 20), "moorage": (0, 0)}


class Level(StrEnum):
    """Weight of a finding: a problem stops the attachment."""

    PROBLEM = "problem"
    WARNING = "warning"
    NOTE = "note"


class SurveyFinding(msgspec.Struct, frozen=True):
    """One finding, and what to do about it."""

    level: Level
    text: str
    remedy: str = ""


class SurveyedNode(msgspec.Struct, frozen=True):
    """A node as the survey sees it: `engine` is its containerRuntimeVersion."""

    name: str
    engine: str
    os: str = "linux"
    kubelet: str = ""


class Survey(msgspec.Struct, frozen=True):
    """Facts of a cluster. Without all rights, what they are needed for is not read.

    missing_rights: those that the user lacks. ungranted: those that the parts have, and that the
    user may not give them. `served` are those of the kinds asked for that the server has; `ours`
    the objects labelled as Moorage's, of workloads, definitions and cluster roles;
    `namespace` is that of the values, None where it does not exist.
    """

    version: str
    server: str = ""
    nodes: tuple[SurveyedNode, ...] = ()
    missing_rights: tuple[Right, ...] = ()
    ungranted: tuple[Right, ...] = ()
    served: frozenset[str] = frozenset()
    ours: tuple[Raw, ...] = ()
    namespace: Raw | None = None

    @property
    def is_whole(self) -> bool:
        """Whether everything could be read."""
        return not self.missing_rights

    @property
    def is_our_server(self) -> bool:
        """Whether the API server is that of `moor up`."""
        return _OWN_SERVER in self.version


class ServedVersion(Object, frozen=True):
    """What an API server says at /version. Numbers may have a suffix: `30+`."""

    git_version: str = ""
    major: str = ""
    minor: str = ""

    @property
    def text(self) -> str:
        """The version as people name it: `gitVersion`, or for builds without tags the numbers."""
        if _MINOR.match(self.git_version) or not (self.major and self.minor):
            return self.git_version
        return f"v{self.major}.{self.minor} ({self.git_version})"


def findings(survey: Survey, values: Values) -> list[SurveyFinding]:
    """Return the findings for an attachment with these values, problems first."""
    found = [
        *_version_findings(survey),
        *right_findings(survey),
        *_admission_findings(survey, values),
    ]
    if survey.is_whole:
        found += _other_findings(survey, values)
        found += _newer_findings(survey)
        found += _namespace_findings(survey, values)
        found += _node_findings(survey)
    order = list(Level)
    return sorted(found, key=lambda finding: order.index(finding.level))


def _version_findings(survey: Survey) -> Iterator[SurveyFinding]:
    match = _MINOR.match(survey.version)
    if match is None and survey.version:
        yield SurveyFinding(
            Level.WARNING,
            f"the version of the API server cannot be understood: {survey.version}",
            f"Kubernetes 1.{LEAST_MINOR} or later is needed",
        )
    elif match is None or int(match[1]) < LEAST_MINOR:
        yield SurveyFinding(
            Level.PROBLEM,
            f"the API server is {survey.version or 'of an unknown version'}",
            f"Kubernetes 1.{LEAST_MINOR} or later is needed: upgrade the control plane",
        )
    elif int(match[1]) == LEAST_MINOR:
        yield SurveyFinding(
            Level.WARNING,
            f"the API server is {survey.version}, which selects custom resources by fields only "
            "with the feature gate CustomResourceFieldSelectors",
            "set it on the API server, or upgrade the control plane: runtime agents list the "
            "profiles of their own node by it",
        )
    # With parts beside them, the definitions were applied by another tool, such as kubectl.
    if (
        survey.is_our_server
        and {obj["kind"] for obj in survey.ours} == {DEFINITION}
        and any(not is_attached(obj) and not is_of_release(obj) for obj in survey.ours)
    ):
        yield SurveyFinding(
            Level.PROBLEM,
            "the control plane is that of `moor up`, which has all of this inside",
            "use it as it is; `moor up --without runtimes` starts one without",
        )


def right_findings(survey: Survey) -> Iterator[SurveyFinding]:
    """Yield a finding for each right that the user lacks."""
    if survey.missing_rights:
        yield SurveyFinding(
            Level.PROBLEM,
            f"you may not {described(survey.missing_rights)}",
            _ADMINISTRATOR,
        )
    if survey.ungranted:
        yield SurveyFinding(
            Level.PROBLEM,
            "you may not give Moorage's parts rights that you do not have yourself: "
            f"{described(survey.ungranted)}",
            f"{_ADMINISTRATOR}, or have one give you the verbs escalate and bind on clusterroles "
            "and roles",
        )


def _admission_findings(survey: Survey, values: Values) -> Iterator[SurveyFinding]:
    if "MutatingWebhookConfiguration" not in survey.served:
        yield SurveyFinding(
            Level.PROBLEM,
            f"the API server does not serve {_ADMISSION} webhook configurations",
            "enable the API group, and the admission plugins MutatingAdmissionWebhook and "
            "ValidatingAdmissionWebhook",
        )
    if _POLICIES not in survey.served:
        yield SurveyFinding(
            Level.PROBLEM,
            f"the API server does not serve {_POLICIES} in {_ADMISSION}, which keeps a runtime "
            "agent to its own node",
            "enable the API group's version v1",
        )
    if values.certificates == CERT_MANAGER and "Certificate" not in survey.served:
        yield SurveyFinding(
            Level.PROBLEM,
            "the certificates shall come from cert-manager, and it is not installed",
            "install cert-manager, or set certificates=own",
        )


def _other_findings(survey: Survey, values: Values) -> Iterator[SurveyFinding]:
    elsewhere = sorted(
        {
            obj["metadata"]["namespace"]
            for obj in survey.ours
            if obj["metadata"].get("namespace", values.namespace) != values.namespace
        }
    )
    if elsewhere:
        yield SurveyFinding(
            Level.PROBLEM,
            f"another Moorage is attached in namespace {', '.join(elsewhere)}",
            f"set namespace={elsewhere[0]} to change it, or `moor detach` it first",
        )
    if releases := sorted({release.name for release in releases_of(survey.ours)}):
        yield SurveyFinding(
            Level.PROBLEM,
            f"Helm installed Moorage here, as release {', '.join(releases)}",
            "change it by `helm upgrade`, or remove it by `helm uninstall` first",
        )


def _newer_findings(survey: Survey) -> Iterator[SurveyFinding]:
    """Warn of a way back, which is gone as any other change is: people do it for a reason."""
    present = {(obj["metadata"].get("labels") or {}).get(VERSION_LABEL, "") for obj in survey.ours}
    newest = max(present, key=_numbers, default="")
    if _numbers(newest) > _numbers(__version__):
        yield SurveyFinding(
            Level.WARNING,
            f"Moorage {newest} is attached, and this is {__version__}: the cluster goes back to it",
            f"use moor {newest}, unless you go back on purpose: fields that {__version__} does not "
            "know are dropped from policies and other objects when they are next written",
        )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"[0-9]{1,9}", version)[:3])


def _namespace_findings(survey: Survey, values: Values) -> Iterator[SurveyFinding]:
    if survey.namespace is None:
        if not values.create_namespace:
            yield SurveyFinding(
                Level.PROBLEM,
                f"namespace {values.namespace} does not exist, and createNamespace is false",
                f"create it: kubectl create namespace {values.namespace}",
            )
        return
    if survey.namespace["metadata"].get("deletionTimestamp"):
        yield SurveyFinding(
            Level.PROBLEM,
            f"namespace {values.namespace} is being deleted",
            "wait until it is gone: kubectl wait --for=delete namespace/"
            f"{values.namespace} --timeout=5m",
        )
        return
    labels = survey.namespace["metadata"].get("labels") or {}
    if is_foreign(survey.namespace):
        yield SurveyFinding(
            Level.WARNING,
            f"namespace {values.namespace} exists already and is not Moorage's: it is used as it "
            "is, and `moor detach` leaves it",
        )
        if labels.get(_ENFORCE, "privileged") != "privileged":
            yield SurveyFinding(
                Level.PROBLEM,
                f"namespace {values.namespace} enforces pod security level {labels[_ENFORCE]}, "
                "under which no runtime agent can see its host",
                f"kubectl label --overwrite namespace {values.namespace} {_ENFORCE}=privileged, "
                "or set another namespace",
            )


def is_foreign(namespace: Obj) -> bool:
    """Return whether a namespace that exists is not one that an attachment made."""
    return not is_labelled(namespace)


def _node_findings(survey: Survey) -> Iterator[SurveyFinding]:
    linux = [node for node in survey.nodes if node.os in ("linux", "")]
    if not linux:
        yield SurveyFinding(
            Level.WARNING,
            "the cluster has no node that runs Linux: the parts wait for one",
        )
    for node in survey.nodes:
        if node.os not in ("linux", ""):
            yield SurveyFinding(
                Level.NOTE, f"node {node.name} runs {node.os}: it gets no runtime agent"
            )
        elif problem := engine_problem(node.engine):
            yield SurveyFinding(
                Level.WARNING,
                f"node {node.name}: {problem}",
                "its handlers are not discovered; containerd 1.6 or later, CRI-O 1.20 or later and "
                "Moorage's own engine are known",
            )


def engine_problem(engine: str) -> str:
    """Return why a runtime agent does not know an engine, given by containerRuntimeVersion.

    Empty for one that it knows.
    """
    match = _ENGINE.fullmatch(engine)
    if match is None:
        return f"its engine is not known yet ({engine or 'not reported'})"
    name, version = match[1], match[2]
    least = _LEAST_ENGINES.get(name)
    if least is None:
        return f"engine {engine} is not known"
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    return f"engine {engine} is too old" if numbers < least else ""


async def look(served: ServedObjects, values: Values, wanted: Sequence[Obj]) -> Survey:
    """Return the facts of a cluster. Raises StatusError, UnreachableError."""
    version = msgspec.json.decode(
        await served.client.request("GET", "/version"), type=ServedVersion
    )
    kinds = {(obj["apiVersion"], obj["kind"]) for obj in wanted} | {
        (_ADMISSION, "MutatingWebhookConfiguration"),
        (_ADMISSION, _POLICIES),
        (_CERT_MANAGER_VERSION, "Certificate"),
    }
    kinds |= set(KINDS)
    resources = await served_resources(served, sorted(kinds))
    missing, ungranted = await _lacking_rights(served, values, wanted, resources)
    survey = Survey(
        version=version.text,
        server=served.client.server,
        missing_rights=missing,
        ungranted=ungranted,
        served=frozenset(kind for _, kind in resources),
    )
    if not survey.is_whole:
        return survey
    nodes = (await served.client.list(NODES)).items
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": values.namespace},
    }
    return msgspec.structs.replace(
        survey,
        nodes=tuple(
            SurveyedNode(
                node.metadata.name,
                node.status.node_info.container_runtime_version,
                node.status.node_info.operating_system,
                node.status.node_info.kubelet_version,
            )
            for node in nodes
        ),
        ours=tuple([obj async for obj in _own_objects(served)]),
        namespace=await served.get(namespace),
    )


async def _lacking_rights(
    served: ServedObjects,
    values: Values,
    wanted: Sequence[Obj],
    resources: Mapping[Kind, Resource[Any]],
) -> tuple[tuple[Right, ...], tuple[Right, ...]]:
    """Return the rights that the user lacks, and those that the user may not give."""
    reviewer = Reviewer(served.client)
    rules = await rules_of(served, bound_roles(wanted))
    return (
        await reviewer.missing(attach_rights(values, wanted, resources)),
        await reviewer.ungranted(grants(wanted, rules)),
    )


async def _own_objects(served: ServedObjects) -> AsyncIterator[Obj]:
    for api_version, kind in (
        ("apps/v1", "Deployment"),
        ("apps/v1", "DaemonSet"),
        ("apiextensions.k8s.io/v1", DEFINITION),
        # A release of Helm is known by objects of the cluster alone.
        ("rbac.authorization.k8s.io/v1", "ClusterRole"),
    ):
        async for obj in served.list(api_version, kind, label_selector=OURS):
            yield obj
