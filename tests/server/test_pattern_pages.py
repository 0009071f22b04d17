"""How answers fail, on the page of a prompt: counts in words, examples, and names that a model wrote."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

from tests.server.client import Answer
from tests.server.conftest import Running
from whet.prompt import Prompt
from whet_client.records import Feedback, Inference
from whet_live.learner import Learner, LearnerConfig
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
