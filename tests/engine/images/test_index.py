from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.engine.errors import NotFoundError
from moorage.engine.images.image import Image, ImageConfiguration
from moorage.engine.images.index import IndexFiles, find, with_image, without_image
from tests.engine.images.builds import configuration, digest

FIRST, SECOND = "sha256:" + "a" * 63 + "1", "sha256:" + "a" * 10 + "b" * 54
DIGEST = "sha256:" + "d" * 64


def image(image_id: str, *tags: str, digests: tuple[str, ...] = ()) -> Image:
    return Image(
        id=image_id, tags=tags, digests=digests, layers=(), size_bytes=1,
        configuration=ImageConfiguration(),
    )  # fmt: skip


IMAGES = {
    FIRST: image(
        FIRST, "docker.io/library/app:latest", "r.io/app:1", digests=(f"r.io/app@{DIGEST}",)
    ),
    SECOND: image(SECOND, "docker.io/library/aaa:latest"),
}


@pytest.mark.parametrize(
    ("reference", "wanted"),
    [
        (FIRST, FIRST),
        (FIRST.removeprefix("sha256:"), FIRST),
        (FIRST[:40], FIRST),
        (FIRST.removeprefix("sha256:")[:11], FIRST),
        ("app", FIRST),
        ("docker.io/app", FIRST),
        ("docker.io/library/app:latest", FIRST),
        ("r.io/app:1", FIRST),
        (f"r.io/app@{DIGEST}", FIRST),
        (f"r.io/app:7@{DIGEST}", FIRST),
        # A name comes before the beginning of an id.
        ("aaa", SECOND),
        ("aaaaaaaaaab", SECOND),
    ],
)
def test_an_image_is_found_by_each_of_its_names(reference: str, wanted: str) -> None:
    assert find(IMAGES, reference).id == wanted


@pytest.mark.parametrize(
    "reference", ["", "app:2", "r.io/app", f"app@{DIGEST}", "sha256:ff", "aaaa", "B A D", DIGEST]
)
def test_what_is_not_there_is_not_found(reference: str) -> None:
    with pytest.raises(NotFoundError, match=f"image {reference}"):
        find(IMAGES, reference)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["1", "2", "3"]),
            st.lists(st.sampled_from(["r/a:1", "r/b:1", "r/c:1"]), max_size=2),
            st.booleans(),
        )
    )
)
def test_a_tag_names_one_image_at_the_most(steps: list[tuple[str, list[str], bool]]) -> None:
    images: dict[str, Image] = {}
    for image_id, tags, is_removed in steps:
        if is_removed:
            images = without_image(images, image_id)
            assert image_id not in images
        else:
            images = with_image(images, image(image_id, *tags))
            assert set(tags) <= set(images[image_id].tags)
        named = [tag for image in images.values() for tag in image.tags]
        assert len(named) == len(set(named))


def test_what_is_written_is_read(tmp_path: Path) -> None:
    files = IndexFiles(tmp_path, ("r/a:1",))
    assert files.load(()) == {}
    layer = digest(b"layer")
    blob = configuration([b"layer"], {"User": "7"})
    written = files.image(blob, digest(blob), ["r/a:1", "r/a:2"], ["r/a@" + DIGEST], 5)
    assert written.is_pinned
    files.keep(written.id, blob)
    files.save({written.id: written})
    assert IndexFiles(tmp_path, ("r/a:1",)).load((layer,)) == {written.id: written}
    assert files.configuration(written.id) == blob
    # Without its layer it is no image, and its configuration goes.
    assert IndexFiles(tmp_path, ()).load(()) == {}
    assert list((tmp_path / "configurations").iterdir()) == []
