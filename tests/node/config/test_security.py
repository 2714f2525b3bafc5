from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from moorage.node.config.errors import ConfigError
from moorage.node.config.security import (
    ImageUser,
    SecurityDefaults,
    container_security,
    is_privileged,
    sandbox_security,
)
from moorage.wire.cri import pb
from tests.node.objects import UID, a_pod, wire_container

Profile = pb.SecurityProfile
DEFAULTS = SecurityDefaults(seccomp_dir=Path("/seccomp"), masked_paths=("/sys/throttle",))
ROOT = ImageUser(uid=0)


def security(
    own: dict[str, Any] | None = None,
    of_pod: dict[str, Any] | None = None,
    user: ImageUser = ROOT,
    defaults: SecurityDefaults = DEFAULTS,
) -> pb.LinuxContainerSecurityContext:
    container = wire_container(securityContext=own) if own is not None else wire_container()
    spec: dict[str, Any] = {"securityContext": of_pod} if of_pod is not None else {}
    pod = a_pod(container, **spec)
    return container_security(pod, pod.spec.containers[0], user, defaults)


def ids(context: pb.LinuxContainerSecurityContext) -> tuple[int | None, str, int | None]:
    return (
        context.run_as_user.value if context.HasField("run_as_user") else None,
        context.run_as_username,
        context.run_as_group.value if context.HasField("run_as_group") else None,
    )


@pytest.mark.parametrize(
    ("own", "of_pod", "user", "wanted"),
    [
        ({}, {}, ImageUser(uid=7), (7, "", None)),
        ({}, {}, ImageUser(name="www"), (None, "www", None)),
        ({}, {"runAsUser": 5, "runAsGroup": 6}, ImageUser(uid=7), (5, "", 6)),
        ({"runAsUser": 0}, {"runAsUser": 5}, ImageUser(name="www"), (0, "", None)),
        ({"runAsGroup": 0}, {"runAsGroup": 6}, ImageUser(uid=7), (7, "", 0)),
    ],
    ids=["image", "image's name", "pod", "container's zero", "group"],
)
def test_the_user(own: Any, of_pod: Any, user: ImageUser, wanted: Any) -> None:
    assert ids(security(own, of_pod, user)) == wanted


WHERE = f'(pod: "web_shop({UID})", container: app)'


@pytest.mark.parametrize(
    ("own", "of_pod", "user", "complaint"),
    [
        (
            {"runAsNonRoot": True, "runAsUser": 0},
            {},
            ImageUser(uid=7),
            f"container's runAsUser breaks non-root policy {WHERE}",
        ),
        (
            {},
            {"runAsNonRoot": True},
            ROOT,
            f"container has runAsNonRoot and image will run as root {WHERE}",
        ),
        (
            {},
            {"runAsNonRoot": True},
            ImageUser(name="www"),
            "container has runAsNonRoot and image has non-numeric user (www), cannot verify user "
            f"is non-root {WHERE}",
        ),
        ({"runAsNonRoot": False}, {"runAsNonRoot": True}, ROOT, None),
        ({"runAsNonRoot": True}, {"runAsUser": 5}, ROOT, None),
        ({"runAsNonRoot": True}, {}, ImageUser(uid=7), None),
    ],
    ids=["root by user", "root by image", "name", "container says no", "pod's user", "number"],
)
def test_non_root_must_be_shown_to_hold(
    own: Any, of_pod: Any, user: ImageUser, complaint: str | None
) -> None:
    if complaint is None:
        security(own, of_pod, user)
        return
    with pytest.raises(ConfigError) as caught:
        security(own, of_pod, user)
    assert str(caught.value) == complaint


@pytest.mark.parametrize(
    ("user", "complaint"),
    [
        (ImageUser(uid=1), None),
        (ImageUser(uid=2**31 - 1), None),
        (ImageUser(uid=2**31), "image has an invalid user id (2147483648)"),
        (ImageUser(uid=2**32), "image has an invalid user id (4294967296)"),
        (ImageUser(uid=-1), "image has an invalid user id (-1)"),
        (ImageUser(uid=0, name="root"), "image will run as root"),
        (ImageUser(name="0x0"), "image has non-numeric user (0x0)"),
        (ImageUser(name="root"), "image has non-numeric user (root)"),
        (ImageUser(), None),
    ],
)
@pytest.mark.parametrize("of_pod", [False, True])
def test_an_images_odd_user_is_not_taken_for_another(
    user: ImageUser, complaint: str | None, of_pod: bool
) -> None:
    wish = {"runAsNonRoot": True}
    contexts = ({}, wish) if of_pod else (wish, {})
    if complaint is None:
        security(*contexts, user)
        return
    with pytest.raises(ConfigError) as caught:
        security(*contexts, user)
    assert complaint in str(caught.value)
    # A user that the pod chooses takes the image's place.
    security({**contexts[0], "runAsUser": 5}, contexts[1], user)


@pytest.mark.parametrize(
    ("own", "of_pod", "by_default", "wanted"),
    [
        ({}, {}, False, Profile(profile_type=Profile.Unconfined)),
        ({}, {}, True, Profile(profile_type=Profile.RuntimeDefault)),
        ({}, {"type": "RuntimeDefault"}, False, Profile(profile_type=Profile.RuntimeDefault)),
        (
            {"type": "Unconfined"},
            {"type": "RuntimeDefault"},
            True,
            Profile(profile_type=Profile.Unconfined),
        ),
        (
            {"type": "Localhost", "localhostProfile": "a/b.json"},
            {},
            False,
            Profile(profile_type=Profile.Localhost, localhost_ref="/seccomp/a/b.json"),
        ),
    ],
    ids=["unset", "on by default", "pod", "container first", "file"],
)
def test_seccomp(own: Any, of_pod: Any, by_default: bool, wanted: pb.SecurityProfile) -> None:
    defaults = SecurityDefaults(seccomp_dir=Path("/seccomp"), has_seccomp_by_default=by_default)
    context = security(
        {"seccompProfile": own} if own else {},
        {"seccompProfile": of_pod} if of_pod else {},
        defaults=defaults,
    )
    assert context.seccomp == wanted


@pytest.mark.parametrize(
    ("own", "complaint"),
    [
        ({"seccompProfile": {"type": "Localhost"}}, "localhostProfile must be set"),
        ({"seccompProfile": {"type": "Odd"}}, 'unknown security profile type: "Odd"'),
        ({"appArmorProfile": {"type": "Localhost"}}, "missing localhost apparmor profile name"),
    ],
)
def test_unavailable_profiles_are_rejected(own: Any, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        security(own)


@pytest.mark.parametrize(
    ("profile", "older"),
    [
        ({"type": "RuntimeDefault"}, "runtime/default"),
        ({"type": "Unconfined"}, "unconfined"),
        ({"type": "Localhost", "localhostProfile": "mine"}, "localhost/mine"),
    ],
)
def test_app_armor_profile_is_set_in_both_fields(profile: Any, older: str) -> None:
    context = security({}, {"appArmorProfile": profile})
    assert context.apparmor_profile == older
    assert context.apparmor.localhost_ref == profile.get("localhostProfile", "")
    assert not security().HasField("apparmor")


def test_groups_of_the_pod() -> None:
    context = security({}, {"fsGroup": 9, "supplementalGroups": [3, 4]})
    assert list(context.supplemental_groups) == [9, 3, 4]
    strict = security({}, {"supplementalGroupsPolicy": "Strict"})
    assert strict.supplemental_groups_policy == pb.SupplementalGroupsPolicy.Strict
    with pytest.raises(ConfigError, match="unsupported supplementalGroupsPolicy: Odd"):
        security({}, {"supplementalGroupsPolicy": "Odd"})


def test_capabilities_and_flags() -> None:
    context = security(
        {
            "capabilities": {"add": ["NET_ADMIN"], "drop": ["ALL"]},
            "privileged": True,
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "seLinuxOptions": {"level": "s0"},
        },
        {"seLinuxOptions": {"level": "s1"}},
    )
    assert context.capabilities == pb.Capability(
        add_capabilities=["NET_ADMIN"], drop_capabilities=["ALL"]
    )
    assert (context.privileged, context.readonly_rootfs, context.no_new_privs) == (True, True, True)
    assert context.selinux_options.level == "s0"
    assert not security().no_new_privs


@pytest.mark.parametrize("mount", [None, "Default"])
def test_kernel_paths_are_hidden_unless_asked_for(mount: str | None) -> None:
    context = security({"procMount": mount})
    assert {"/proc/kcore", "/sys/firmware", "/sys/throttle"} <= set(context.masked_paths)
    assert "/proc/sys" in context.readonly_paths
    unmasked = security({"procMount": "Unmasked"})
    assert not unmasked.masked_paths
    assert not unmasked.readonly_paths


def test_the_sandbox_is_as_privileged_as_its_most_privileged_container() -> None:
    plain = a_pod()
    pod = a_pod(
        wire_container(),
        initContainers=[wire_container("init", securityContext={"privileged": True})],
        securityContext={"runAsUser": 5, "runAsGroup": 6, "fsGroup": 9},
    )
    assert (is_privileged(plain), is_privileged(pod)) == (False, True)
    context = sandbox_security(pod)
    assert context.privileged
    assert (context.run_as_user.value, context.run_as_group.value) == (5, 6)
    assert list(context.supplemental_groups) == [9]
    assert context.seccomp.profile_type == Profile.RuntimeDefault
