"""Detachment: removes all that an attachment put into a cluster, in an order that blocks no pod.

webhook configurations ─▶ RuntimeInstallations, which the agents undo ─▶ the agents' directories on
their nodes ─▶ workloads ─▶ traces on pods, nodes, workloads and classes ─▶ rights, service,
namespace ─▶ definitions, with all objects of their kinds. It finds everything by labels, so that
one that was interrupted goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from moorage.api.clock import Clock
from moorage.api.errors import ConflictError, InvalidError, NotFoundError
from moorage.api.pods import ENDED_PHASES, Pod
from moorage.api.runtime_group import API_VERSION
from moorage.api.text import counted
from moorage.attach.belongings import belongings
from moorage.attach.class_uses import ClassUses, Release, class_uses, releases_of
from moorage.attach.detach_options import DetachOptions, Leftover
from moorage.attach.errors import AttachError
from moorage.attach.foreign_objects import foreign_objects, kept_directories
from moorage.attach.manifests import DEFINITION, KINDS, WEBHOOKS, WORKLOADS
from moorage.attach.manifests.controllers import HEALTH_PORT, LEASE
from moorage.attach.manifests.identity import OURS, TEST_POD, Obj
from moorage.attach.manifests.runtime_agent import DATA_DIRECTORY
from moorage.attach.manifests.webhook import SECRET
from moorage.attach.manifests.workloads import http_probe
from moorage.attach.needed_rights import (
    Reviewer,
    Right,
    detach_rights,
    look_rights,
    served_resources,
)
from moorage.attach.progress import PartProgress, follow
from moorage.attach.served_objects import ServedObjects, name_of
from moorage.attach.traces import (
    asks_our_labels,
    condition_patch,
    gate_patch,
    installations_of,
    is_managed_class,
    is_ours,
    is_probe_class,
    leave,
    metadata_patch,
    undo,
)
from moorage.runtimes.class_users import class_users, pods_under
from moorage.runtimes.custom_resources.installation import CUSTOM_RESOURCE_DEFINITIONS
from moorage.runtimes.probing.default_classes import RECORD, RECORD_NAMESPACE
from moorage.wire.client.informer import Informer
from moorage.wire.client.queue import wait_until
from moorage.wire.client.resources import NAMESPACES, PODS, Resource
from moorage.wire.client.rest import Client, PatchType

_WRITTEN_BY_USERS = (
    "RuntimePolicy", "ClusterRuntimePolicy", "RuntimeClassQuota", "RuntimeRollout",
)  # fmt: skip
_WORKLOAD_KINDS = (
    ("apps/v1", "Deployment"), ("apps/v1", "StatefulSet"), ("apps/v1", "DaemonSet"),
    ("batch/v1", "CronJob"),
    # Their controller copies the annotations of Deployments, and removes none.
    ("apps/v1", "ReplicaSet"),
)  # fmt: skip
_OTHER_KINDS = (("coordination.k8s.io/v1", "Lease"), ("v1", "Pod"))
_ROLES = ("Role", "RoleBinding")
_MANAGED_BY = "app.kubernetes.io/managed-by"
_SHOWN = 20
_TRIES = 5
_REMOVE_DATA, _NO_INSTALL = "--remove-data", "--no-install"
_DATA_REMOVAL_S = 60.0


class DetachPlan(msgspec.Struct, frozen=True):
    """What a detachment would remove: objects of ours, and objects of users' that go with them.

    pods: by the names of RuntimeInstallations, the pods under them, which a node waits for before
    it undoes one. foreign: by each of our namespaces, others' objects in it. classes: by the names
    of RuntimeClasses that our controllers made, how many pods use it. releases: those of Helm.
    missing_rights: what the user may not do; without the rights to look, nothing else is known.
    """

    objects: tuple[Obj, ...]
    users_objects: tuple[Obj, ...]
    installations: tuple[Obj, ...]
    pods: Mapping[str, tuple[str, ...]] = {}
    foreign: Mapping[str, list[str]] = {}
    classes: Mapping[str, ClassUses] = {}
    releases: tuple[Release, ...] = ()
    missing_rights: tuple[Right, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing of ours."""
        return not self.objects and not self.missing_rights


async def plan_detachment(client: Client) -> DetachPlan:
    """Return the objects to remove. Raises StatusError, UnreachableError."""
    served = ServedObjects(client)
    resources = await served_resources(served, (*KINDS, *_OTHER_KINDS))
    reviewer = Reviewer(client)
    if missing := await reviewer.missing(look_rights(resources)):
        return DetachPlan((), (), (), missing_rights=missing)
    found = belongings([obj async for obj in _labelled(served)])[0]
    made = [_RECORD, *_made_at_run_time(found)]
    spaces = [obj["metadata"]["name"] for obj in found if obj["kind"] == "Namespace"]
    foreign = {name: await foreign_objects(client, name) for name in spaces}
    installations = await installations_of(served)
    classes = [obj async for obj in served.list("node.k8s.io/v1", "RuntimeClass")]
    users = await class_users(client)
    uses = await class_uses(served, users)
    return DetachPlan(
        tuple(found),
        tuple([obj for kind in _WRITTEN_BY_USERS async for obj in served.list(API_VERSION, kind)]),
        installations,
        {
            obj["metadata"]["name"]: pods_under(obj["spec"].get("handler", ""), classes, users)
            for obj in installations
        },
        {name: names for name, names in foreign.items() if names},
        {
            name: uses.get(name, ClassUses())
            for name in (
                obj["metadata"]["name"]
                for obj in classes
                if is_managed_class(obj) and not is_probe_class(obj)
            )
        },
        releases_of(found),
        await reviewer.missing(detach_rights(found, made, resources)) if found else (),
    )


async def detach(client: Client, clock: Clock, options: DetachOptions) -> list[Leftover]:
    """Remove everything. Returns what stays.

    Raises AttachError when agents do not undo their installations, or parts do not end, in time;
    StatusError, UnreachableError. Run again, it goes on.
    """
    return await _Detachment(client, clock, options).run()


async def _labelled(served: ServedObjects) -> AsyncIterator[Obj]:
    for api_version, kind in KINDS:
        async for obj in served.list(api_version, kind, label_selector=OURS):
            yield obj


class _Detachment:
    def __init__(self, client: Client, clock: Clock, options: DetachOptions) -> None:
        self._client = client
        self._served = ServedObjects(client)
        self._clock = clock
        self._options = options
        self._left: list[Leftover] = []

    async def run(self) -> list[Leftover]:
        found, others = belongings([obj async for obj in _labelled(self._served)])
        self._left += [
            Leftover(name_of(obj), "it has Moorage's label, but no attachment made it")
            for obj in others
        ]
        self._left += [
            Leftover(
                f"Helm's record of the release {release.name}",
                f"this removes it: {release.removal}",
            )
            for release in releases_of(found)
        ]
        await self._delete(obj for obj in found if obj["kind"] in WEBHOOKS)
        if not self._options.leaves_runtimes:
            self._left += await undo(self._client, self._served, self._clock, self._options)
        await self._remove_data([obj for obj in found if obj["kind"] == "DaemonSet"])
        await self._end_workloads([obj for obj in found if obj["kind"] in WORKLOADS])
        if self._options.leaves_runtimes:
            self._left += await leave(self._served, self._options)
        await self._clean_pods()
        for kind in ("Node", "Namespace"):
            await self._clean("v1", kind)
        for api_version, kind in _WORKLOAD_KINDS:
            await self._clean(api_version, kind)
        await self._remove_classes()
        # While the objects are there by which their namespaces are found, should this be stopped.
        await self._delete(_made_at_run_time(found))
        rest = (DEFINITION, "Namespace", *WEBHOOKS, *WORKLOADS)
        await self._delete(obj for obj in reversed(found) if obj["kind"] not in rest)
        for obj in found:
            if obj["kind"] == "Namespace":
                await self._remove_namespace(obj)
        if self._options.keeps_definitions:
            self._left.append(Leftover("the kinds of runtime.moorage.dev", "as you asked"))
        else:
            await self._remove_definitions([obj for obj in found if obj["kind"] == DEFINITION])
        await self._wait_gone()
        return self._left

    async def _delete(self, objects: Iterable[Obj]) -> None:
        for obj in objects:
            if await self._served.delete(obj):
                self._options.said(f"{name_of(obj)} removed")

    async def _remove_data(self, agents: Sequence[Obj]) -> None:
        """Have the agents remove their directory on each node, in their own pods.

        Nodes that do not answer keep it, and so do those where runtimes stay.
        """
        if self._options.leaves_runtimes and agents:
            self._left.append(
                Leftover(f"{DATA_DIRECTORY} on nodes", "runtimes that were left are in it")
            )
        for agent in agents:
            container = agent["spec"]["template"]["spec"]["containers"][0]
            arguments = container.get("args") or []
            changed = {
                "name": container["name"],
                "args": [*arguments, _REMOVE_DATA, f"--health-port={HEALTH_PORT}"],
                # Without it a pod counts as ready before it has removed anything.
                "readinessProbe": http_probe("/readyz", HEALTH_PORT, period_s=1),
            }
            patch = {
                "spec": {
                    "updateStrategy": {"rollingUpdate": {"maxUnavailable": "100%"}},
                    "template": {"spec": {"containers": [changed]}},
                }
            }
            if _NO_INSTALL in arguments:
                self._left.append(
                    Leftover(
                        f"the empty directory {DATA_DIRECTORY} on each node",
                        "agents that install nothing have no capability to remove it",
                    )
                )
            if _REMOVE_DATA not in arguments:
                await self._served.patch(agent, patch, PatchType.STRATEGIC)
            try:
                await follow(
                    self._client, _namespace_of(agent), [agent], _unreported, self._clock,
                    min(self._options.timeout_s, _DATA_REMOVAL_S),
                )  # fmt: skip
            except AttachError:
                self._left += await kept_directories(self._client, _namespace_of(agent))

    async def _end_workloads(self, workloads: Sequence[Obj]) -> None:
        """Delete the workloads, and wait until their pods are gone: they would write again."""
        await self._delete(workloads)
        for namespace in sorted({_namespace_of(obj) for obj in workloads}):
            informer = Informer(
                self._client, PODS, namespace=namespace, label_selector=OURS, clock=self._clock
            )
            try:
                async with asyncio.timeout(self._options.timeout_s):
                    await wait_until(informer, lambda present: not unended(present))
            except TimeoutError as error:
                names = ", ".join(unended(informer))
                raise AttachError(
                    f"pods of namespace {namespace} have not ended after "
                    f"{self._options.timeout_s:g} s: {names}; see kubectl describe pod, and run it "
                    "again"
                ) from error

    async def _clean_pods(self) -> None:
        """Lift our gates, so that no pod is stuck; remove our annotations and conditions."""
        waiting: set[str] = set()

        async def clean(pod: Obj) -> None:
            await self._lift_gates(pod)
            await self._strip(pod)
            if asks_our_labels(pod):
                waiting.add(name_of(pod))

        await self._served.each("v1", "Pod", clean)
        if waiting:
            self._left.append(
                Leftover(
                    f"node affinity of {counted(len(waiting), 'pod')} that no node took",
                    "a pod's affinity cannot be removed: delete these pods, so that their "
                    "owners make others",
                )
            )

    async def _lift_gates(self, pod: Obj) -> None:
        for _ in range(_TRIES):
            patch = gate_patch(pod)
            if patch is None:
                return
            try:
                await self._served.patch(pod, patch, PatchType.JSON)
            except NotFoundError:
                return
            except (ConflictError, InvalidError):
                present = await self._served.get(pod)
                if present is None:
                    return
                pod = {**pod, **present}
            else:
                self._options.said(f"{name_of(pod)}: scheduling gate lifted")
                return
        self._left.append(Leftover(f"scheduling gate of {name_of(pod)}", "it changes all the time"))

    async def _clean(self, api_version: str, kind: str) -> None:
        await self._served.each(api_version, kind, self._strip)

    async def _strip(self, obj: Obj) -> None:
        try:
            if patch := metadata_patch(obj):
                await self._served.patch(obj, patch, PatchType.MERGE)
            if patch := condition_patch(obj):
                await self._served.patch(obj, patch, PatchType.STRATEGIC, subresource="status")
        except NotFoundError:
            # It is gone, with what we had written on it.
            return

    async def _remove_classes(self) -> None:
        """Delete the classes that our controllers made; those in use become the user's own.

        Their record goes with them.
        """
        uses = await class_uses(self._served, await class_users(self._client))
        async for obj in self._served.list("node.k8s.io/v1", "RuntimeClass"):
            name = obj["metadata"]["name"]
            if is_probe_class(obj):
                await self._served.delete(obj)
                continue
            if not is_managed_class(obj):
                await self._strip(obj)
                continue
            if name in uses and not self._options.removes_classes:
                await self._strip(obj)
                released = {"metadata": {"labels": {_MANAGED_BY: None}}}
                await self._served.patch(obj, released, PatchType.MERGE)
                self._left.append(
                    Leftover(
                        f"RuntimeClass {name}",
                        f"{uses[name].sentence}; it is yours now: kubectl delete runtimeclass "
                        f"{name}",
                    )
                )
            else:
                await self._delete([obj])
        await self._delete([_RECORD])

    async def _remove_namespace(self, namespace: Obj) -> None:
        name = namespace["metadata"]["name"]
        if not self._options.removes_namespaces:
            found = await foreign_objects(self._client, name)
            if found:
                why = f"others' objects are in it: {shortened(found)}"
                self._left.append(
                    Leftover(
                        f"Namespace {name}",
                        f"{why}; remove them and run this again, or give --remove-namespaces",
                    )
                )
                return
        await self._delete([namespace])

    async def _remove_definitions(self, found: Sequence[Obj]) -> None:
        """Delete the definitions; objects of their kinds have no controller left to finish them."""
        for obj in found:
            kind = obj["spec"]["names"]["kind"]
            async for item in self._served.list(API_VERSION, kind):
                finalizers = item["metadata"].get("finalizers") or []
                if any(is_ours(name) for name in finalizers):
                    kept = [name for name in finalizers if not is_ours(name)]
                    patch = {"metadata": {"finalizers": kept}}
                    await self._served.patch(item, patch, PatchType.MERGE)
        await self._delete(found)

    async def _wait_gone(self) -> None:
        """Wait until namespace and definitions, whose contents go first, are gone themselves."""
        resources: tuple[Resource[Any], ...] = (NAMESPACES, CUSTOM_RESOURCE_DEFINITIONS)
        for resource in resources:
            informer: Informer[Any] = Informer(
                self._client, resource, label_selector=OURS, clock=self._clock
            )
            try:
                async with asyncio.timeout(self._options.timeout_s):
                    await wait_until(
                        informer,
                        lambda present: not any(one.metadata.deletion_timestamp for one in present),
                    )
            except TimeoutError as error:
                names = ", ".join(sorted(one.metadata.name for one in informer))
                raise AttachError(
                    f"{resource.plural} {names} are not gone after {self._options.timeout_s:g} s; "
                    f"see kubectl get {resource.plural} -o yaml for what holds them"
                ) from error


def shortened(names: Sequence[str]) -> str:
    """Return the first 20 names, and how many more there are."""
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def unended(pods: Iterable[Pod]) -> list[str]:
    """Return the names of the pods that may still write, as an ended one of `helm test` cannot."""
    return sorted(pod.metadata.name for pod in pods if pod.status.phase not in ENDED_PHASES)


def _unreported(_: Sequence[PartProgress]) -> None:
    """Report no progress: it takes seconds."""


def _namespace_of(obj: Obj) -> str:
    return str(obj["metadata"].get("namespace", ""))


def _made_at_run_time(found: Iterable[Obj]) -> list[Obj]:
    """Return the objects that the parts make for themselves where they are, or have been.

    Certificate and lease, and the pod of a `helm test` that failed.
    """
    # Roles are in namespaces of others too.
    homes = sorted({_namespace_of(one) for one in found if one["kind"] not in _ROLES} - {""})
    return [
        _named(api_version, kind, name, namespace)
        for namespace in homes
        for api_version, kind, name in (
            ("v1", "Secret", SECRET),
            ("coordination.k8s.io/v1", "Lease", LEASE),
            ("v1", "Pod", TEST_POD),
        )
    ]


def _named(api_version: str, kind: str, name: str, namespace: str) -> Obj:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


_RECORD = _named("v1", "ConfigMap", RECORD, RECORD_NAMESPACE)
"""The controllers' record of the classes that they made."""
