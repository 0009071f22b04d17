"""Locks and dates of instructions, on the page and over REST."""

from __future__ import annotations

from urllib.parse import quote

from tests.server.conftest import Running
from whet.prompt import Prompt

NAME = "shop/help"
TEXT = "Answer {{q}}.\n<!-- whet:begin -->\n- Be polite.\n- Wish a merry winter.\n<!-- whet:end -->\n"


def test_an_approver_locks_and_dates_an_instruction_and_everybody_sees_it(server: Running) -> None:
    live = server.state.live
    live.registry.create(NAME, Prompt.parse(TEXT), author="ann", label="production")
    approver, viewer = server.browser("approver"), server.browser("viewer")
    path = f"/terms/{quote(NAME)}"
    approver.page(f"/prompts/{NAME}")
    approver.submit(path, {"key": "i1", "lock": "yes"})
    approver.submit(
        path, {"key": "i2", "dates": "12-01..01-06", "review": "2020-01-01", "reason": "the season"}
    )
    page = viewer.page(f"/prompts/{NAME}").text
    assert "locked" in page and "stands 12-01..01-06" in page and "review due since 2020-01-01" in page
    assert "the season" in page and "Lock and dates" not in page
    terms = live.learner.instructions(NAME)
    assert [(one["locked"], one["first_day"]) for one in terms] == [(True, None), (False, "12-01")]


def test_programs_set_terms_and_what_the_reader_sees(server: Running) -> None:
    server.state.live.registry.create(NAME, Prompt.parse(TEXT), author="ann", label="production")
    approver, admin = server.client("approver"), server.client("admin")
    done = approver.send(f"/v1/instructions/{NAME}", {"id": "i2", "dates": "..2030-01-01", "locked": True})
    assert done.status == 200 and (done.json["locked"], done.json["last_day"]) == (True, "2030-01-01")
    assert approver.send(f"/v1/instructions/{NAME}", {"id": "i2", "dates": "soon"}).status == 400
    assert approver.send(f"/v1/instructions/{NAME}", {"id": "i9", "locked": True}).status == 409
    assert approver.send("/v1/instructions/none", {"id": "i1", "locked": True}).status == 404
    rows = approver.get(f"/v1/instructions/{NAME}").json["instructions"]
    assert [one["locked"] for one in rows] == [False, True]
    assert admin.send(f"/v1/learning-settings/{NAME}", {"reads": "answer"}).json["reads"] == "answer"
    assert approver.send(f"/v1/learning-settings/{NAME}", {"reads": "comment"}).status == 403
    assert approver.send(f"/v1/learning-again/{NAME}", {"vague": True}).json == {"rows": 0}
