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


def fill(server: Running, root: Path) -> None:
    """Three users, two of whom complain; the reader names what they complain of."""
    live = server.state.live
    live.registry.create(NAME, Prompt.parse("Answer {{input}}.\n"), author="ann", label="production")
    users = ("ann", "bob", "cid")
    answers = [Inference(NAME, 1, {"input": "x"}, "Yes.", id=f"{HOSTILE}{user}", user=user) for user in users]
    said = [Feedback("comment", one.id, text="Too long.", user=one.user) for one in answers[:2]]
    live.traffic.add(answers, said)
    new = [{"name": HOSTILE, "description": f"<script>window.HACKED=1</script> {HOSTILE}"}]
    sorted_ = [{"number": n, "kind": HOSTILE} for n in (1, 2)]

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
