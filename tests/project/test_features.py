"""docs/features.md is what the code says, and no face gains anything alone."""

from __future__ import annotations

import pytest
from support import behaviours, features


def test_the_page_is_what_the_code_says():
    assert features.PAGE.read_text() == features.page(), "PYTHONPATH=tests python -m support.features"


@pytest.mark.parametrize(
    ("faces", "same", "reasons"),
    [
        (features.options(), features.SAME_OPTIONS, features.OPTIONS),
        (features.members(), features.SAME_MEMBERS, features.MEMBERS),
    ],
    ids=["options", "members"],
)
def test_what_a_face_has_alone_has_a_reason(faces, same, reasons):
    assert not features.mistakes(faces, same, reasons)
    faces[0].add("new")
    assert features.mistakes(faces, same, reasons) == [
        "new is not everywhere, and has no reason in tests/support/features.py"
    ]
    faces[1].add("new")
    faces[2].add("new")
    assert features.mistakes(faces, same, {**reasons, "new": "x"}) == ["new is everywhere, and has a reason"]
    for face in faces:
        face.discard("new")


def test_the_tests_of_behaviours_exist():
    assert not behaviours.missing()
