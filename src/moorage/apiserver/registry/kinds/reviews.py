"""Questions about identities and permissions: posted, answered, never kept."""

from __future__ import annotations

from moorage.apiserver.registry.kind import Kind, Served

_AUTHENTICATION = ("authentication.k8s.io", "io.k8s.api.authentication.v1")
_AUTHORIZATION = ("authorization.k8s.io", "io.k8s.api.authorization.v1")


def _review(home: tuple[str, str], name: str, *, is_namespaced: bool = False) -> Kind:
    group, types = home
    return Kind(
        name=name,
        plural=f"{name.lower()}s",
        served=(Served(group=group, version="v1", type=f"{types}.{name}"),),
        is_namespaced=is_namespaced,
        verbs=("create",),
        is_stored=False,
    )


TOKEN_REVIEW = _review(_AUTHENTICATION, "TokenReview")
SELF_SUBJECT_REVIEW = _review(_AUTHENTICATION, "SelfSubjectReview")
SUBJECT_ACCESS_REVIEW = _review(_AUTHORIZATION, "SubjectAccessReview")
SELF_SUBJECT_ACCESS_REVIEW = _review(_AUTHORIZATION, "SelfSubjectAccessReview")
LOCAL_SUBJECT_ACCESS_REVIEW = _review(
    _AUTHORIZATION, "LocalSubjectAccessReview", is_namespaced=True
)
SELF_SUBJECT_RULES_REVIEW = _review(_AUTHORIZATION, "SelfSubjectRulesReview")

REVIEWS: tuple[Kind, ...] = (
    TOKEN_REVIEW,
    SELF_SUBJECT_REVIEW,
    SUBJECT_ACCESS_REVIEW,
    SELF_SUBJECT_ACCESS_REVIEW,
    LOCAL_SUBJECT_ACCESS_REVIEW,
    SELF_SUBJECT_RULES_REVIEW,
)
