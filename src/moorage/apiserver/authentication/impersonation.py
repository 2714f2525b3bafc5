"""User impersonation: the Impersonate-* headers and their authorization.

Source: API docs "User impersonation". Groups, uid and extras need a user; each impersonated
attribute needs the verb `impersonate` on it.
"""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import unquote

from multidict import CIMultiDictProxy

from moorage.api import names
from moorage.api.errors import BadRequestError, ForbiddenError
from moorage.apiserver.authentication.service_accounts import service_account_groups
from moorage.apiserver.registry.rbac import Action
from moorage.apiserver.registry.request import ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, User

_PREFIX = "impersonate-"
_EXTRA = _PREFIX + "extra-"
_ACCOUNT_PREFIX = "system:serviceaccount:"
_AUTHENTICATION = "authentication.k8s.io"

IsAllowed = Callable[[User, Action], bool]


def impersonated(user: User, headers: CIMultiDictProxy[str], is_allowed: IsAllowed) -> User:
    """Return the user that the headers impersonate; `user` itself without such headers.

    Raises ForbiddenError if impersonation is not allowed, BadRequestError if the
    headers name no user. Hot path: every request.
    """
    if not has_impersonation(headers):
        return user
    name = headers.get("Impersonate-User", "")
    groups = tuple(headers.getall("Impersonate-Group", []))
    uid = headers.get("Impersonate-Uid", "")
    extra = _extra(headers)
    if not name:
        if groups or uid or extra:
            raise BadRequestError("requested impersonation without impersonating a user")
        return user
    for action in _needed(name, groups, uid, extra):
        if not is_allowed(user, action):
            raise _refused(user, action)
    account = _account(name)
    if not groups and account is not None:
        groups = service_account_groups(account[0])
    usual = UNAUTHENTICATED if name == ANONYMOUS else AUTHENTICATED
    if usual not in groups:
        groups = (*groups, usual)
    return User(name=name, uid=uid, groups=groups, extra=extra)


def has_impersonation(headers: CIMultiDictProxy[str]) -> bool:
    """Return whether any header asks for impersonation."""
    return _PREFIX in " ".join(headers).lower()


def _extra(headers: CIMultiDictProxy[str]) -> dict[str, tuple[str, ...]]:
    extra: dict[str, list[str]] = {}
    for header, value in headers.items():
        if header.lower().startswith(_EXTRA):
            key = unquote(header[len(_EXTRA) :]).lower()
            extra.setdefault(key, []).append(value)
    return {key: tuple(values) for key, values in extra.items()}


def _needed(
    name: str, groups: tuple[str, ...], uid: str, extra: dict[str, tuple[str, ...]]
) -> list[Action]:
    needed = [_user_action(name)]
    needed += [Action(verb="impersonate", resource="groups", name=group) for group in groups]
    if uid:
        needed.append(Action(verb="impersonate", group=_AUTHENTICATION, resource="uids", name=uid))
    needed += [
        Action(
            verb="impersonate",
            group=_AUTHENTICATION,
            resource="userextras",
            subresource=key,
            name=value,
        )
        for key, values in extra.items()
        for value in values
    ]
    return needed


def _user_action(name: str) -> Action:
    account = _account(name)
    if account is None:
        return Action(verb="impersonate", resource="users", name=name)
    return Action(
        verb="impersonate", resource="serviceaccounts", namespace=account[0], name=account[1]
    )


def _account(name: str) -> tuple[str, str] | None:
    """Return namespace and name of a service account's user name, None for any other user.

    A malformed name with the prefix is an ordinary user: the right to impersonate the accounts of
    a namespace does not extend to it. Source: apiserver `serviceaccount.SplitUsername`.
    """
    if not name.startswith(_ACCOUNT_PREFIX):
        return None
    parts = name.removeprefix(_ACCOUNT_PREFIX).split(":")
    if len(parts) != 2 or names.dns_label_errors(parts[0]) or names.dns_subdomain_errors(parts[1]):
        return None
    return parts[0], parts[1]


def _refused(user: User, action: Action) -> ForbiddenError:
    return ForbiddenError.of(
        action.resource,
        action.name,
        f'User "{user.name}" cannot impersonate resource "{action.full_resource}" in API group '
        f'"{action.group}" '
        + (
            f'in the namespace "{action.namespace}"' if action.namespace else "at the cluster scope"
        ),
        group=action.group,
    )
