"""Locks and dates of instructions, on the page and over REST."""

from __future__ import annotations

from urllib.parse import quote

from tests.server.conftest import Running
from whet.prompt import Prompt
from whet.prompt.events import Rewrite
from whet_live.learner import learner_store
from whet_live.learner.learner_store import PromptUpdate
from whet_live.registry import Decision, PromptEdit

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


def test_what_upkeep_measured_without_an_instruction_stands_beside_the_text_that_was_tried(
    server: Running,
) -> None:
    live = server.state.live
    live.registry.create(NAME, Prompt.parse(TEXT), author="ann", label="production")
    whole = {"difference": -0.083, "low": -0.184, "high": 0.004, "n": 60, "wins": 0, "losses": 5}
    gate = {"promoted": False, "reason": "Something may be lost.", "whole": whole}
    for n, (key, measured) in enumerate(
        (("i1", gate), ("i2", {**gate, "whole": {**whole, "losses": 7}}), ("i2", gate))
    ):
        plan = {"step": "without", "seen": [], "ids": [key]}
        update = PromptUpdate(
            f"u{n}", NAME, 1, "auto", "refused", (), n, gate=measured, plan=plan, reason="kept"
        )
        with live.registry.change() as connection:
            learner_store.open_update(connection, update)
    shown = server.browser("viewer").page(f"/prompts/{NAME}").text
    assert shown.count("without it: 5 worse, 0 better of 60 examples") == 2 and "7 worse" not in shown
    assert "effect not measured" not in shown
    assert "Upkeep: try without i2" in server.browser("viewer").page(f"/learning/{NAME}").text
    edit = PromptEdit((Rewrite(id="i2", text="Wish a merry season.", author="ann", at="2026"),))
    filed = live.registry.propose(f"{NAME}@production", edit, author="ann", label="production")
    live.registry.decide(filed.id, Decision("approve"), actor="eve")
    shown = server.browser("viewer").page(f"/prompts/{NAME}").text
    assert shown.count("without it: ") == 1 and "effect not measured" in shown, (
        "of another text nothing was measured"
    )
