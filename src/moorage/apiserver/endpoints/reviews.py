"""Review endpoints: TokenReview, SelfSubjectReview and the access reviews.

Source: authentication.k8s.io/v1, authorization.k8s.io/v1; API docs "Checking API access".
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from moorage.api import labels
from moorage.api.clock import Clock, format_time
from moorage.api.errors import BadRequestError, FieldError, InvalidError
from moorage.api.fields import EVERYTHING, FieldRequirement, FieldSelector, parse
from moorage.api.labels import Requirement, Selector
from moorage.apiserver.authentication import Authenticator
from moorage.apiserver.authorization import Authorizer
from moorage.apiserver.endpoints.bodies import BodyDecoder
from moorage.apiserver.endpoints.call import Call
from moorage.apiserver.endpoints.replies import Reply, document_reply
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.rbac import Action, RuleResolver
from moorage.apiserver.registry.request import SYSTEM_MASTERS, Request, User
from moorage.apiserver.registry.validation.scheduling import label_requirement_errors


class Reviews(msgspec.Struct, frozen=True):
    """Serves every kind of review."""

    decoder: BodyDecoder
    authenticator: Authenticator
    authorizer: Authorizer
    resolver: RuleResolver
    clock: Clock

    async def create(self, call: Call) -> Reply:
        """Answer POST of a review with the review and its status; nothing is stored."""
        form = call.document_form()
        request = Request(user=call.user, field_validation="Ignore")
        review = await self.decoder.decode(call, request)
        review.setdefault("metadata", {})
        answer: Callable[[Call, Obj], Obj] = {
            "TokenReview": self._token,
            "SelfSubjectReview": self._self_subject,
            "SubjectAccessReview": self._subject_access,
            "LocalSubjectAccessReview": self._local_access,
            "SelfSubjectAccessReview": self._self_access,
            "SelfSubjectRulesReview": self._rules,
        }[call.kind.name]
        review["status"] = answer(call, review)
        document = {"kind": call.kind.name, "apiVersion": call.served.api_version, **review}
        return document_reply(document, form, 201, type_name=call.served.type)

    def _token(self, call: Call, review: Obj) -> Obj:
        del call
        spec = review["spec"]
        token = spec.get("token", "")
        if not token:
            raise BadRequestError("token is required for TokenReview in authentication")
        asked = tuple(spec.get("audiences", ()))
        authenticated = self.authenticator.user_of_token(token, asked or None)
        if authenticated is None:
            return {"user": {}, "error": "invalid bearer token"}
        user, audiences = authenticated
        return {"authenticated": True, "user": _user_info(user), "audiences": list(audiences)}

    def _self_subject(self, call: Call, review: Obj) -> Obj:
        review["metadata"]["creationTimestamp"] = format_time(self.clock.now())
        return {"userInfo": _user_info(call.user)}

    def _subject_access(self, call: Call, review: Obj) -> Obj:
        del call
        _raise_invalid(subject_errors(review["spec"]))
        return self._decision(subject_of(review["spec"]), review["spec"])

    def _local_access(self, call: Call, review: Obj) -> Obj:
        spec = review["spec"]
        errors = subject_errors(spec)
        if "resourceAttributes" in spec:
            namespace = spec["resourceAttributes"].get("namespace", "")
            if namespace != call.namespace:
                errors.append(
                    FieldError.invalid(
                        "spec.resourceAttributes.namespace",
                        namespace,
                        "must match metadata.namespace",
                    )
                )
        if "nonResourceAttributes" in spec:
            errors.append(
                FieldError.invalid(
                    "spec.nonResourceAttributes",
                    spec["nonResourceAttributes"],
                    "disallowed on this kind of request",
                )
            )
        _raise_invalid(errors)
        return self._decision(subject_of(spec), spec)

    def _self_access(self, call: Call, review: Obj) -> Obj:
        _raise_invalid(attribute_errors(review["spec"]))
        return self._decision(call.user, review["spec"])

    def _decision(self, user: User, spec: Obj) -> Obj:
        selector, label_selector, unread = read_selectors(spec.get("resourceAttributes") or {})
        decision = self.authorizer.decide(user, action_of(spec), selector, label_selector)
        status: Obj = {"allowed": decision.is_allowed}
        if decision.reason:
            status["reason"] = decision.reason
        if unread:
            status["evaluationError"] = unread
        return status

    def _rules(self, call: Call, review: Obj) -> Obj:
        namespace = review["spec"].get("namespace", "")
        if not namespace:
            raise BadRequestError("no namespace on request")
        resource_rules: list[Obj] = []
        path_rules: list[Obj] = []
        if SYSTEM_MASTERS in call.user.groups:
            resource_rules.append({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]})
            path_rules.append({"verbs": ["*"], "nonResourceURLs": ["*"]})
        for held in self.resolver.rules_of(call.user, namespace):
            rule: Obj = msgspec.to_builtins(held.rule)
            (path_rules if held.rule.non_resource_urls else resource_rules).append(rule)
        return {
            "resourceRules": resource_rules,
            "nonResourceRules": path_rules,
            "incomplete": False,
        }


def action_of(spec: Obj) -> Action:
    """Return the action of a valid SubjectAccessReview, which has one of the two attributes."""
    paths = spec.get("nonResourceAttributes")
    if paths is not None:
        return Action(verb=paths.get("verb", ""), path=paths.get("path", ""))
    attributes = spec["resourceAttributes"]
    return Action(
        verb=attributes.get("verb", ""),
        group=attributes.get("group", ""),
        resource=attributes.get("resource", ""),
        subresource=attributes.get("subresource", ""),
        namespace=attributes.get("namespace", ""),
        name=attributes.get("name", ""),
    )


def subject_of(spec: Obj) -> User:
    """Return the user that a SubjectAccessReview asks about."""
    return User(
        name=spec.get("user", ""),
        uid=spec.get("uid", ""),
        groups=tuple(spec.get("groups", ())),
        extra={key: tuple(values) for key, values in spec.get("extra", {}).items()},
    )


def subject_errors(spec: Obj) -> list[FieldError]:
    """Return what is wrong with the specification of a SubjectAccessReview."""
    errors = _choice_errors(spec)
    if not spec.get("user") and not spec.get("groups"):
        why = "at least one of user or group must be specified"
        errors.append(FieldError.invalid("spec.user", "", why))
    return errors + selector_errors(spec.get("resourceAttributes", {}))


def attribute_errors(spec: Obj) -> list[FieldError]:
    """Return what is wrong with the attributes that a review asks about."""
    return _choice_errors(spec) + selector_errors(spec.get("resourceAttributes", {}))


def _choice_errors(spec: Obj) -> list[FieldError]:
    has_resource, has_path = "resourceAttributes" in spec, "nonResourceAttributes" in spec
    if has_resource and has_path:
        return [
            FieldError.invalid(
                "spec.nonResourceAttributes",
                spec["nonResourceAttributes"],
                "cannot be specified in combination with resourceAttributes",
            )
        ]
    if not has_resource and not has_path:
        return [
            FieldError.invalid(
                "spec.resourceAttributes",
                None,
                "exactly one of nonResourceAttributes or resourceAttributes must be specified",
            )
        ]
    return []


def _raise_invalid(errors: list[FieldError]) -> None:
    if errors:
        raise InvalidError.of("", "", errors, group="authorization.k8s.io")


def _user_info(user: User) -> Obj:
    info = {
        "username": user.name,
        "uid": user.uid,
        "groups": list(user.groups),
        "extra": {key: list(values) for key, values in user.extra.items()},
    }
    return {key: value for key, value in info.items() if value}


# Access review selectors: validation, and the selectors passed to authorizers.
#
# RBAC ignores selectors; the node authorizer allows a node agent to list its own pods by
# `spec.nodeName`, and its own volumes by a label. A requirement that cannot be parsed is dropped,
# which widens the review, and reported in `evaluationError`. Source: authorization.k8s.io/v1
# `FieldSelectorAttributes` and `LabelSelectorAttributes`, KEP-4601; upstream's
# `pkg/apis/authorization/validation` and `pkg/registry/authorization/util`.

_PATH = "spec.resourceAttributes"
_WITH_VALUES = ("In", "NotIn")
_WITHOUT_VALUES = ("Exists", "DoesNotExist")
_LABEL_OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}


def selector_errors(attributes: Obj) -> list[FieldError]:
    """Validate the selectors of `resourceAttributes`. Unknown operators pass, for newer clients."""
    errors: list[FieldError] = []
    if "fieldSelector" in attributes:
        path, selector = f"{_PATH}.fieldSelector", attributes["fieldSelector"]
        errors += _form_errors(selector, path)
        for index, requirement in enumerate(selector.get("requirements", ())):
            errors += _field_errors(requirement, f"{path}.requirements[{index}]")
    if "labelSelector" in attributes:
        path, selector = f"{_PATH}.labelSelector", attributes["labelSelector"]
        errors += _form_errors(selector, path)
        for index, requirement in enumerate(selector.get("requirements", ())):
            at = f"{path}.requirements[{index}]"
            errors += _operator_errors(requirement, at)
            errors += label_requirement_errors(requirement, at)
    return errors


def read_selectors(attributes: Obj) -> tuple[FieldSelector, Selector, str]:
    """Return the parsed field and label requirements, and the `evaluationError`, empty for none.

    The attributes are valid.
    """
    selector, label_selector, errors = EVERYTHING, labels.EVERYTHING, []
    if asked := attributes.get("fieldSelector"):
        selector, is_whole = _read_fields(asked)
        if not is_whole:
            errors.append(_ignored("fieldSelector", is_partial=not selector.is_everything))
    if asked := attributes.get("labelSelector"):
        label_selector, is_whole = _read_labels(asked)
        if not is_whole:
            is_partial = not label_selector.is_everything
            errors.append(_ignored("labelSelector", is_partial=is_partial))
    return selector, label_selector, "; ".join(errors)


def _form_errors(selector: Obj, path: str) -> list[FieldError]:
    raw, requirements = selector.get("rawSelector", ""), selector.get("requirements")
    if raw and requirements:
        why = "may not specified at the same time as requirements"
        return [FieldError.invalid(f"{path}.rawSelector", raw, why)]
    if not raw and not requirements:
        why = f"when {path} is specified, requirements or rawSelector is required"
        return [FieldError.required(f"{path}.requirements", why)]
    return []


def _field_errors(requirement: Obj, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if not requirement.get("key"):
        errors.append(FieldError.required(f"{path}.key", "must be specified"))
    return errors + _operator_errors(requirement, path)


def _operator_errors(requirement: Obj, path: str) -> list[FieldError]:
    operator, values = requirement.get("operator", ""), requirement.get("values")
    if operator in _WITH_VALUES and not values:
        why = "must be specified when `operator` is 'In' or 'NotIn'"
        return [FieldError.required(f"{path}.values", why)]
    if operator in _WITHOUT_VALUES and values:
        why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        return [FieldError.forbidden(f"{path}.values", why)]
    return []


def _read_fields(asked: Obj) -> tuple[FieldSelector, bool]:
    """Return the requirements that parse, and whether none was dropped."""
    if raw := asked.get("rawSelector"):
        try:
            return parse(raw), True
        except ValueError:
            return EVERYTHING, False
    requirements = asked["requirements"]
    # Field selectors compare with one value, as in their text form.
    read = tuple(
        FieldRequirement(
            requirement["key"], requirement["values"][0], is_equal=requirement["operator"] == "In"
        )
        for requirement in requirements
        if requirement["operator"] in _WITH_VALUES and len(requirement["values"]) == 1
    )
    return FieldSelector(read), len(read) == len(requirements)


def _read_labels(asked: Obj) -> tuple[Selector, bool]:
    """Return the requirements with operators that are known, and whether none was dropped."""
    if raw := asked.get("rawSelector"):
        try:
            return labels.parse(raw), True
        except ValueError:
            return labels.EVERYTHING, False
    requirements = asked["requirements"]
    read = tuple(
        Requirement(
            requirement["key"],
            _LABEL_OPERATORS[requirement["operator"]],
            tuple(sorted(requirement.get("values", ()))),
        )
        for requirement in requirements
        if requirement.get("operator") in _LABEL_OPERATORS
    )
    return Selector(read), len(read) == len(requirements)


def _ignored(field: str, *, is_partial: bool) -> str:
    how = "partially ignored" if is_partial else "ignored"
    return f"{_PATH}.{field} {how} due to parse error"
