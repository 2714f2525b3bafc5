"""Query options of writes.

Source: `metav1.CreateOptions`, `UpdateOptions`, `PatchOptions`, `DeleteOptions`.
"""

from __future__ import annotations

from collections.abc import Mapping

from moorage.api.errors import BadRequestError, FieldError, InvalidError
from moorage.api.numbers import parse_int
from moorage.apiserver.registry.deletion import UNREAD_OPTION, DeleteOptions
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.request import MANAGER_BYTES, Request, User

_VALIDATIONS = ("Ignore", "Warn", "Strict")
_META_GROUP = "meta.k8s.io"


def write_request(
    user: User,
    user_agent: str,
    query: Mapping[str, str],
    options_kind: str,
    *,
    annotations: dict[str, str] | None = None,
    is_apply: bool = False,
) -> Request:
    """Return the request of a create, update or patch. Raises InvalidError for bad options.

    `annotations` are those of the request's audit event.
    """
    errors: list[FieldError] = []
    is_dry_run = _dry_run(_dry_run_values(query), errors)
    manager = query.get("fieldManager", "")
    if len(manager.encode()) > MANAGER_BYTES:
        errors.append(FieldError.too_long("fieldManager", MANAGER_BYTES))
    if is_apply and not manager:
        errors.append(FieldError.required("fieldManager", "is required for apply patch"))
    if not is_apply and query.get("force"):
        errors.append(FieldError.forbidden("force", "may not be specified for non-apply patch"))
    validation = query.get("fieldValidation", "")
    if validation and validation not in _VALIDATIONS:
        errors.append(
            FieldError.not_supported("fieldValidation", validation, ("", *sorted(_VALIDATIONS)))
        )
    if errors:
        raise InvalidError.of(options_kind, "", errors, group=_META_GROUP)
    return Request(
        user=user,
        user_agent=user_agent,
        is_dry_run=is_dry_run,
        field_manager=manager,
        field_validation=validation,
        annotations={} if annotations is None else annotations,
    )


def delete_options(query: Mapping[str, str], body: Obj) -> tuple[DeleteOptions, bool]:
    """Return the options of a delete, from its body or else its query, and its dry-run flag."""
    if not body:
        body = _from_query(query)
    errors: list[FieldError] = []
    is_dry_run = _dry_run(body.get("dryRun") or _dry_run_values(query), errors)
    if errors:
        raise InvalidError.of("DeleteOptions", "", errors, group=_META_GROUP)
    return DeleteOptions.of(body), is_dry_run


def _from_query(query: Mapping[str, str]) -> Obj:
    options: Obj = {}
    if query.get("gracePeriodSeconds"):
        options["gracePeriodSeconds"] = int_option(query, "gracePeriodSeconds")
    if query.get("propagationPolicy"):
        options["propagationPolicy"] = query["propagationPolicy"]
    if query.get("orphanDependents"):
        options["orphanDependents"] = query["orphanDependents"] not in ("0", "false")
    if query.get(UNREAD_OPTION):
        options[UNREAD_OPTION] = query[UNREAD_OPTION] not in ("0", "false")
    return options


def int_option(query: Mapping[str, str], name: str) -> int:
    """Return an integer query option. Raises BadRequestError."""
    text = query.get(name, "")
    try:
        return parse_int(text) if text else 0
    except ValueError as error:
        raise BadRequestError(str(error)) from error


def _dry_run_values(query: Mapping[str, str]) -> list[str]:
    getall = getattr(query, "getall", None)
    if getall is not None:
        return list(getall("dryRun", []))
    return [query["dryRun"]] if "dryRun" in query else []


def _dry_run(values: list[str], errors: list[FieldError]) -> bool:
    wrong = [value for value in values if value != "All"]
    if wrong:
        errors.append(FieldError.not_supported("dryRun", values, ("All",)))
    return bool(values) and not wrong
