"""Who may use an image that is on the node."""

from __future__ import annotations

import pytest

from moorage.api.containers import POLICIES
from moorage.node.images.verification import Access, AllowlistError, PullSecret, Verification
from moorage.node.options import NodeOptions, OptionsError

MINE = PullSecret("u1", "team", "pull", "hash-1")


@pytest.mark.parametrize(
    ("policy", "repository", "preloaded", "pulled"),
    [
        ("NeverVerify", "r.example/a", False, False),
        ("NeverVerifyPreloadedImages", "r.example/a", False, True),
        ("NeverVerifyAllowlistedImages", "r.example/a", True, True),
        ("NeverVerifyAllowlistedImages", "r.example/free", False, False),
        ("NeverVerifyAllowlistedImages", "r.example/free/more", True, True),
        ("NeverVerifyAllowlistedImages", "r.example/all/a/b", False, False),
        ("NeverVerifyAllowlistedImages", "r.example/allow", True, True),
        ("AlwaysVerify", "r.example/free", True, True),
    ],
)
def test_policies(policy: str, repository: str, *, preloaded: bool, pulled: bool) -> None:
    listed = ("r.example/free", "r.example/all/*") if "Allowlisted" in policy else ()
    verification = Verification(policy, listed)
    verification.check()
    assert verification.is_needed(repository, is_pulled=False) is preloaded
    assert verification.is_needed(repository, is_pulled=True) is pulled


def test_the_default_trusts_what_was_there_before() -> None:
    assert Verification().policy == "NeverVerifyPreloadedImages"
    assert NodeOptions(name="n1").image_verification == Verification()


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        (" r.example/a", "leading/trailing spaces are not allowed"),
        ("", "the supplied pattern is too short"),
        ("/*", "at least registry hostname is required"),
        ("r.*/a", "only patterns ending with '/*' are allowed"),
        ("r.example/a*", "only patterns ending with '/*' are allowed"),
        ("*", "only patterns ending with '/*' are allowed"),
        ("r.example/A", "failed to parse as an image name"),
        ("r.example/a:1", "neither tag nor digest is accepted"),
        (f"r.example/a@sha256:{'0' * 64}", "neither tag nor digest is accepted"),
    ],
)
def test_invalid_patterns_are_rejected(pattern: str, why: str) -> None:
    verification = Verification("NeverVerifyAllowlistedImages", (pattern,))
    with pytest.raises(AllowlistError, match=why.replace("*", r"\*")):
        verification.check()
    with pytest.raises(OptionsError):
        NodeOptions(name="n1", image_verification=verification).check()


def test_a_policy_and_a_list_must_fit() -> None:
    with pytest.raises(AllowlistError, match="is none of NeverVerify, "):
        Verification("Sometimes").check()
    for policy in set(POLICIES) - {"NeverVerifyAllowlistedImages"}:
        with pytest.raises(AllowlistError, match="needs the policy NeverVerifyAllowlistedImages"):
            Verification(policy, ("r.example/a",)).check()


@pytest.mark.parametrize(
    ("secret", "is_admitted"),
    [
        (MINE, True),
        (PullSecret("u2", "other", "copy", "hash-1"), True),
        (PullSecret("u1", "team", "pull", "hash-2"), True),
        (PullSecret("u2", "team", "pull", "hash-2"), False),
        (PullSecret("u1", "other", "pull", "hash-2"), False),
        (PullSecret("u2", "other", "pull", ""), False),
    ],
    ids=["same", "same credential elsewhere", "same secret, new credential", "secret made again",
         "other namespace", "no hash"],
)  # fmt: skip
def test_whom_an_access_admits(secret: PullSecret, *, is_admitted: bool) -> None:
    unhashed = PullSecret("u9", "team", "unhashed", "")
    other = PullSecret("u8", "x", "y", "hash-8")
    access = Access((unhashed, MINE))
    assert access.admits([other, secret]) == (secret if is_admitted else None)


def test_accesses_add_up() -> None:
    theirs = PullSecret("u2", "a", "pull", "hash-2")
    renewed = PullSecret("u1", "team", "pull", "hash-3")
    both = Access.by(MINE).joined(Access.by(theirs))
    assert both == Access((theirs, MINE))
    assert both.joined(Access.by(renewed)) == Access((theirs, renewed))
    everyone = Access.by(None)
    assert everyone == Access(node_pods_accessible=True)
    assert both.joined(everyone) == everyone.joined(both) == everyone
    assert Access().joined(Access()) == Access()


def test_an_access_does_not_grow_without_end() -> None:
    access = Access()
    for number in range(300):
        access = access.joined(Access.by(PullSecret(str(number), "n", str(number), str(number))))
    assert len(access.kubernetes_secrets) == 100
    renewed = PullSecret("7", "n", "7", "new")
    assert renewed in access.joined(Access.by(renewed)).kubernetes_secrets
