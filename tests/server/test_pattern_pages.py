"""How answers fail, on the page of a prompt: counts in words, examples, and names that a model wrote."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

from sqlalchemy import select

from tests.server.client import Answer
from tests.server.conftest import Running
from whet.prompt import Prompt
from whet_client.records import Feedback, Inference
from whet_live.learner import Learner, LearnerConfig
from whet_live.learner.learner_tables import failure_patterns
from whet_live.learner.patterns import name_patterns

NAME = "shop/p"
HOSTILE = "<img src=x onerror=window.HACKED=1>"


def words(answer: Answer) -> str:
    """The text of a page without its marks."""
    return " ".join(re.sub(r"<[^>]+>", " ", answer.text).split())


def fill(server: Running, root: Path, kinds: tuple[str, str] = (HOSTILE, HOSTILE)) -> None:
    """Three users, two of whom complain; the reader names what each complains of."""
    live = server.state.live
    live.registry.create(NAME, Prompt.parse("Answer {{input}}.\n"), author="ann", label="production")
    users = ("ann", "bob", "cid")
    answers = [Inference(NAME, 1, {"input": "x"}, "Yes.", id=f"{HOSTILE}{user}", user=user) for user in users]
    said = [Feedback("comment", one.id, text="Too long.", user=one.user) for one in answers[:2]]
    live.traffic.add(answers, said)
    about = f"<script>window.HACKED=1</script> {HOSTILE}"
    new = [{"name": kind, "description": about} for kind in dict.fromkeys(kinds)]
    sorted_ = [{"number": n, "kind": kind} for n, kind in enumerate(kinds, 1)]

    def reader(messages: object) -> str:
        return json.dumps({"new": new, "critiques": sorted_})

    learner = Learner(live.database, live.registry, live.traffic, config=LearnerConfig(reader, root=root))
    asyncio.run(name_patterns(learner.context, NAME, 24, whole_day=True))


def test_patterns_are_shown_with_counts_trend_and_examples(server: Running, tmp_path: Path) -> None:
    fill(server, tmp_path / "learn")
    answer = server.browser("viewer").page(f"/prompts/{NAME}")
    assert answer.status == 200 and "<img" not in answer.text and "<script>" not in answer.text
    shown = words(answer)
    assert "2 critiques, 2 users" in shown and "2 in a pattern" in shown
    assert re.search(r"2 2 3 66\.7% 20\.8% to 93\.9%", shown), "the week in numbers"
    assert re.search(
        r"<desc[^>]*>In the week of [\d-]+ 66\.7% of 3 users \(95%: 20\.8% to 93\.9%\)\.</desc>", answer.text
    )
    links = re.findall(r'href="(/feedback/[^"?]*)"', answer.text)
    assert len(links) == 2 and server.browser("viewer").page(links[0]).status == 200


def test_a_prompt_without_patterns_says_so(server: Running) -> None:
    server.state.live.registry.create(NAME, Prompt.parse("Answer."), author="ann")
    shown = words(server.browser("viewer").page(f"/prompts/{NAME}"))
    assert "No critique is in a pattern yet." in shown and "Critiques: none." in shown


def test_patterns_are_listed_renamed_and_merged_by_rest(server: Running, tmp_path: Path) -> None:
    fill(server, tmp_path / "learn")
    viewer, editor = server.client("viewer"), server.client("editor")
    found = viewer.get(f"/v1/patterns/{NAME}?weeks=2").json
    (one,) = found["patterns"]
    assert (one["id"], one["critiques"], len(one["weeks"]), found["in_patterns"]) == ("k1", 2, 2, 2)
    named = editor.send(f"/v1/patterns/{NAME}", {"id": "k1", "name": "Too long", "reason": "clear"})
    assert named.status == 200 and named.json["name"] == "Too long"
    assert viewer.get(f"/v1/patterns/{NAME}").json["patterns"][0]["name"] == "Too long"
    assert editor.send(f"/v1/patterns/{NAME}", {"id": "k9", "name": "Fine"}).status == 409
    assert editor.send(f"/v1/patterns/{NAME}", {"id": "k1", "name": ""}).status == 400
    assert editor.send(f"/v1/pattern-merges/{NAME}", {"id": "k1", "into": "k1"}).status == 409
    assert editor.send("/v1/pattern-merges/none", {"id": "k1", "into": "k2"}).status == 404
    assert viewer.get("/v1/patterns/none").status == 404
    assert viewer.get(f"/v1/patterns/{NAME}?weeks=99").status == 400


def test_two_patterns_become_one_by_rest(server: Running, tmp_path: Path) -> None:
    fill(server, tmp_path / "learn", kinds=("Too long", "Too dry"))
    done = server.client("editor").send(
        f"/v1/pattern-merges/{NAME}", {"id": "k2", "into": "k1", "reason": "one failure"}
    )
    assert done.json == {"id": "k2", "into": "k1", "critiques": 1}
    (one,) = server.client("viewer").get(f"/v1/patterns/{NAME}").json["patterns"]
    assert (one["id"], one["critiques"], one["users"]) == ("k1", 2, 2)
    log = server.client("viewer").get("/v1/audit?subject=shop/p").json["entries"]
    (entry,) = [row for row in log if row["action"] == "pattern.merge"]
    assert entry["details"] == {"pattern": "k2", "into": "k1", "critiques": 1, "reason": "one failure"}


def entries(server: Running, action: str) -> list[tuple[str, dict[str, object]]]:
    """Actor and details in the audit log."""
    items = server.state.live.registry.audit(subject=NAME).items
    return [(entry.actor, dict(entry.details)) for entry in items if entry.action == action]


def patterns(server: Running) -> dict[str, tuple[str, str, int]]:
    """Name, description and critiques of each pattern."""
    listed = server.state.live.learner.patterns(NAME).patterns
    return {one.id: (one.name, one.description, one.critiques) for one in listed}


def test_an_editor_renames_a_pattern_on_the_page(server: Running, tmp_path: Path) -> None:
    fill(server, tmp_path / "learn", kinds=("Too long", "Too dry"))
    browser = server.browser("editor")
    shown = browser.page(f"/prompts/{NAME}").text
    assert shown.count(f'action="/patterns/{NAME}"') == 2 and 'aria-label="Name of k1"' in shown
    sent = {"key": "k1", "name": "Wordy", "description": "Answers say it twice.", "reason": "clear"}
    done = browser.submit(f"/patterns/{NAME}", sent)
    assert done.status == 303 and done.headers["location"] == f"/prompts/{NAME}#patterns"
    assert patterns(server)["k1"] == ("Wordy", "Answers say it twice.", 1)
    assert entries(server, "pattern.rename") == [("editor", {"pattern": "k1", "reason": "clear"})]
    assert server.browser("viewer").page(f"/prompts/{NAME}").text.count("<form") < shown.count("<form")
    for path in ("patterns", "pattern-merges"):
        assert server.browser("viewer").submit(f"/{path}/{NAME}", sent).status == 403
        assert browser.submit(f"/{path}/{NAME}", {**sent, "csrf": "x"}).status == 403
        assert browser.submit(f"/{path}/{NAME}", sent, Origin="https://evil.example").status == 403
        assert browser.submit(f"/{path}/none", sent).status == 404
    assert len(entries(server, "pattern.rename")) == 1


def test_a_description_that_was_left_as_it_is_stays_the_readers(server: Running, tmp_path: Path) -> None:
    """It goes with the critiques that it was written from; one of a person's own stays."""
    fill(server, tmp_path / "learn", kinds=("Too long", "Too dry"))
    browser = server.browser("editor")
    text = patterns(server)["k1"][1]
    browser.submit(
        f"/patterns/{NAME}", {"key": "k1", "name": "Wordy", "description": f" {text}", "reason": ""}
    )
    browser.submit(
        f"/patterns/{NAME}", {"key": "k2", "name": "Dry", "description": "A tone of files.", "reason": ""}
    )
    for user in ("ann", "bob"):
        assert server.browser("admin").submit("/forget", {"user": user, "again": user}).status == 303
    with server.state.live.database.read() as connection:
        rows = connection.execute(select(failure_patterns.c.number, failure_patterns.c.description)).all()
    assert dict(map(tuple, rows)) == {2: "A tone of files."}


def test_a_name_that_cannot_be_is_told_with_what_was_typed(server: Running, tmp_path: Path) -> None:
    fill(server, tmp_path / "learn", kinds=("Too long", "Too dry"))
    sent = {"key": "k2", "name": "too LONG", "description": "Mine & mine.", "reason": "why"}
    answer = server.browser("editor").submit(f"/patterns/{NAME}", sent)
    assert (
        answer.status == 400 and "is the name of k1. Choose another name, or merge k2 into k1." in answer.text
    )
    form = answer.text[answer.text.index('id="refused-form"') :]
    assert 'value="too LONG"' in form and 'value="Mine &amp; mine."' in form and 'value="why"' in form
    assert patterns(server)["k2"][0] == "Too dry"


def test_an_editor_merges_two_patterns_on_the_page_and_is_asked_first(
    server: Running, tmp_path: Path
) -> None:
    fill(server, tmp_path / "learn", kinds=("Too long", "Too dry"))
    browser = server.browser("editor")
    assert '<option value="k1">k1: Too long</option>' in browser.page(f"/prompts/{NAME}").text
    sent = {"key": "k2", "into": "k1", "reason": "one failure"}
    asked = browser.submit(f"/pattern-merges/{NAME}", sent)
    assert asked.status == 409 and "a merge cannot be undone" in asked.text
    form = asked.text[asked.text.index('id="refused-form"') :]
    assert '<option value="k1" selected="">' in form and 'value="one failure"' in form
    assert 'name="confirm" value="k2 k1"' in form and len(patterns(server)) == 2
    wrong = browser.submit(f"/pattern-merges/{NAME}", {**sent, "confirm": "k1 k2"})
    assert wrong.status == 409 and len(patterns(server)) == 2
    done = browser.submit(f"/pattern-merges/{NAME}", {**sent, "confirm": "k2 k1"})
    assert done.status == 303 and patterns(server)["k1"][2] == 2 and len(patterns(server)) == 1
    details = {"pattern": "k2", "into": "k1", "critiques": 1, "reason": "one failure"}
    assert entries(server, "pattern.merge") == [("editor", details)]
    assert f'action="/pattern-merges/{NAME}"' not in browser.page(f"/prompts/{NAME}").text, "one is left"
    assert browser.submit(f"/pattern-merges/{NAME}", {"key": "k1", "into": ""}).status == 400
    gone = browser.submit(f"/pattern-merges/{NAME}", {**sent, "confirm": "k2 k1"})
    assert gone.status == 400 and "k2 was merged into k1" in gone.text


def test_names_of_patterns_are_text_in_the_forms_too(server: Running, tmp_path: Path) -> None:
    fill(server, tmp_path / "learn", kinds=(HOSTILE, 'x"><script>'))
    shown = server.browser("editor").page(f"/prompts/{NAME}").text
    assert "<img" not in shown and shown.count("<script") == 1
