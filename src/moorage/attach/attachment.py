"""Attachment of Moorage to a cluster: look, plan, install, and see what works."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from moorage.api.clock import Clock
from moorage.attach.changes import Change, Verb, plan_changes
from moorage.attach.installation import InstallationOptions, install, with_authority
from moorage.attach.manifests import KINDS, objects
from moorage.attach.needed_rights import Reviewer, rights_on, served_resources
from moorage.attach.outcome import Outcome, read_outcome, wait_reported
from moorage.attach.served_objects import ServedObjects
from moorage.attach.survey import (
    Level,
    Survey,
    SurveyFinding,
    findings,
    is_foreign,
    look,
    right_findings,
)
from moorage.attach.values import Values
from moorage.wire.client.rest import Client


class Plan(msgspec.Struct, frozen=True):
    """What an attachment would do. `changes` are empty where a problem forbids it."""

    values: Values
    survey: Survey
    findings: tuple[SurveyFinding, ...]
    changes: tuple[Change, ...] = ()

    @property
    def is_possible(self) -> bool:
        """Whether no problem was found."""
        return all(finding.level is not Level.PROBLEM for finding in self.findings)

    @property
    def changing(self) -> Sequence[Change]:
        """The changes of objects that do not stay as they are."""
        return [change for change in self.changes if change.verb is not Verb.KEEP]


async def plan_attachment(client: Client, values: Values) -> Plan:
    """Look at a cluster, and return what an attachment with these values would do.

    A namespace that is there and not ours is used as it is. Raises StatusError, UnreachableError.
    """
    served = ServedObjects(client)
    survey = await look(served, values, objects(values))
    found = tuple(findings(survey, values))
    if survey.namespace is not None and is_foreign(survey.namespace):
        values = msgspec.structs.replace(values, create_namespace=False)
    plan = Plan(values, survey, found)
    if not plan.is_possible:
        return plan
    wanted = await with_authority(served, values, objects(values))
    changes = await plan_changes(served, wanted)
    removed = [change.obj for change in changes if change.verb is Verb.REMOVE]
    resources = await served_resources(served, KINDS)
    missing = await Reviewer(client).missing(rights_on(resources, removed, ["delete"]))
    if missing:
        # Known only now, and only of what these values no longer ask for.
        survey = msgspec.structs.replace(survey, missing_rights=missing)
        return Plan(values, survey, (*right_findings(survey), *found))
    return msgspec.structs.replace(plan, changes=tuple(changes))


async def attach(client: Client, plan: Plan, clock: Clock, options: InstallationOptions) -> Outcome:
    """Install what was planned, and return what works then.

    Raises AttachError if the parts are not ready in time, StatusError, UnreachableError.
    """
    await install(ServedObjects(client), plan.values, plan.changes, clock, options)
    await wait_reported(client, clock, options.report_s)
    return await read_outcome(client)
