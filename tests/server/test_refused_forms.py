"""A form that is refused comes back with everything that was typed, and a text with other slots is asked about."""

from __future__ import annotations

import html
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from tests.server.client import Answer, Client
from tests.server.conftest import Running, Start
from tests.server.world import NAME, SOURCE, fill
from whet.errors import StorageError
from whet_live.server.app import ROUTERS
from whet_live.server.limits import ServerLimits, TokenBucket

TYPED = 'Line one <b>&amp;</b>\n\n  "two"\r\n'


class Forms(HTMLParser):
    """The fields of the form that a page says was refused, as a browser would send them, and whether they are in sight."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.fields: dict[str, list[str]] = {}
        self.action = ""
        self.folded: set[str] = set()
        self._inside, self._box, self._select, self._text = False, "", "", ""
        self._folds: list[bool] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {key: value or "" for key, value in attrs}
        if tag == "details":
            self._folds.append("open" not in given)
        if tag == "form" and given.get("id") == "refused-form":
            self._inside, self.action = True, given["action"]
        if not self._inside:
            return
        kind = given.get("type", "text")
        if tag == "input" and (kind not in ("radio", "checkbox") or "checked" in given):
            self._add(given["name"], given.get("value", ""))
        elif tag == "textarea":
            self._box, self._text = given["name"], ""
        elif tag == "select":
            self._select = given["name"]
        elif tag == "option" and "selected" in given:
            self._add(self._select, given["value"])

    def _add(self, name: str, value: str) -> None:
        self.fields.setdefault(name, []).append(value)
        if any(self._folds):
            self.folded.add(name)

    def handle_data(self, data: str) -> None:
        if self._box:
            self._text += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea" and self._box:
            self._add(self._box, self._text.removeprefix("\n"))
            self._box = ""
        elif tag == "form":
            self._inside = False
        elif tag == "details":
            self._folds.pop()

    @property
    def last(self) -> dict[str, str]:
        """The last value of each field but the secret."""
        return {name: values[-1] for name, values in self.fields.items() if name != "csrf"}


def alert(answer: Answer) -> str:
    """What the page says was wrong."""
    found = re.search(r'<p class="alert" role="alert">(.*?)<a', answer.text, re.DOTALL)
    assert found is not None, answer.text[:2000]
    return html.unescape(re.sub("<[^>]+>", "", found[1])).strip()


def refused(browser: Client, path: str, fields: dict[str, Any], status: int = 400) -> Forms:
    """The form that comes back with a refusal; its secret is that of the session."""
    answer = browser.submit(path, fields)
    assert answer.status == status, answer.text[:500]
    assert alert(answer)
    forms = Forms(answer.text)
    assert forms.fields["csrf"] == [browser.csrf]
    return forms


def test_every_form_of_the_page_comes_back_where_it_is_refused() -> None:
    """Signing in and out hold nothing that somebody typed and may read, and what the script of an app sends is no form."""
    every = [one for router in ROUTERS for one in router.endpoints]
    takes = [one for one in every if one.method == "POST" and not one.path.startswith("/v1/")]
    assert {one.path for one in takes if one.form is None} == {"/login", "/logout", "/snippet"}


TRIAL = {
    "label": "staging", "control": "1", "challenger": "2", "metric": "copy", "hours": "3", "share": "200", "policy": "ramp",
    "unit": "episode", "guard-error": "", "guard-cost": "7", "guard-latency": "", "guard-rating": "0.5",
}  # fmt: skip
RATING = {"target": "answer-5", "key": "x" * 36, "rating": "9", "comment": TYPED, "correction": "c", "prompt": "", "after": "",
          "passed": ""}  # fmt: skip
FENCE = "<!-- whet:begin -->" + TYPED
CASES: list[tuple[str, str, dict[str, Any], int]] = [
    ("editor", "/new", {"name": NAME, "text": TYPED, "message": "why <i>"}, 400),
    ("editor", "/new", {"name": "a b|c", "text": "{{x}}", "message": ""}, 400),
    ("editor", f"/edit/{NAME}", {"base": "1", "message-0": FENCE, "message": "m", "label": "l"}, 400),
    ("editor", f"/labels/{NAME}", {"label": "staging", "version": "77", "reason": 'be"cause'}, 400),
    ("annotator", "/annotate", RATING, 400),
    ("approver", f"/new-experiment/{NAME}", TRIAL, 400),
    ("admin", "/access", {"name": "no name", "role": "editor", "days": "30", "prompts": ""}, 400),
    ("admin", f"/learning-settings/{NAME}", {"mode": "auto", "label": "!!"}, 400),
    ("admin", "/forget", {"user": "user-1", "again": "user-2"}, 400),
]


@pytest.mark.parametrize(("role", "path", "fields", "status"), CASES)
def test_what_was_typed_stands_in_the_form_again(
    server: Running, role: str, path: str, fields: dict[str, Any], status: int
) -> None:
    fill(server.state.live)
    forms = refused(server.browser(role), path, fields, status)
    wanted = {name: value.replace("\r\n", "\n") for name, value in fields.items()}
    unseen = {"rating": "9"}  # a choice that the form does not offer
    assert forms.last == {name: value for name, value in wanted.items() if name not in unseen}
    assert forms.action == path and not forms.folded


def test_choices_and_edits_of_a_review_stay(server: Running) -> None:
    world = fill(server.state.live)
    approver, path = server.browser("approver"), f"/review/{world.proposal}"
    fields = {"text-i2": "Another text.", "keep": ["i2"], "reason": "so", "verdict": "approve"}
    forms = refused(approver, path, fields)
    assert forms.last["text-i2"] == "Another text." and forms.fields["keep"] == ["i2"]
    assert forms.last["reason"] == "so"


def test_a_form_of_one_row_is_never_shown_as_that_of_another(server: Running) -> None:
    """The page may hold many forms of one address: the row of the refused one is gone, so its fields stand by themselves."""
    fill(server.state.live)
    path = f"/learning-instruction/{NAME}"
    forms = refused(server.browser("approver"), path, {"key": "r99", "text": "Say the price."})
    assert forms.last == {"key": "r99", "text": "Say the price."} and forms.action == path


def test_an_ended_session_loses_nothing(server: Running) -> None:
    fill(server.state.live)
    editor = server.browser("editor")
    old, editor.cookie = editor.csrf, ""
    fields = {"name": "a/b", "text": TYPED, "message": ""}
    answer = editor.submit("/new", fields)
    assert answer.status == 401 and "Sign in in another tab" in answer.text
    assert Forms(answer.text).last["text"] == TYPED.replace("\r\n", "\n")
    again = server.browser("editor")
    assert again.csrf != old
    forms = Forms(again.submit("/new", {**fields, "csrf": old}).text)
    assert forms.last["text"] == TYPED.replace("\r\n", "\n") and forms.fields["csrf"] == [again.csrf]


def test_a_role_that_does_not_reach_loses_nothing_and_sees_nothing(server: Running) -> None:
    fill(server.state.live)
    fields = {"base": "1", "message-0": TYPED, "message": "m", "label": "l"}
    answer = server.browser("viewer").submit(f"/edit/{NAME}", fields)
    assert answer.status == 403 and "needs the role editor" in alert(answer)
    assert Forms(answer.text).last == {**fields, "message-0": TYPED.replace("\r\n", "\n")}
    assert "{{question}}" not in answer.text, "the page of the form is not for readers"


def test_too_many_requests_lose_nothing(start: Start) -> None:
    with start(ServerLimits(use=TokenBucket(0.01, 20))) as server:
        fill(server.state.live)
        editor = server.browser("editor")
        fields = {"name": "a/b", "text": TYPED, "message": ""}
        answers = (editor.submit("/new", fields) for _ in range(30))
        answer = next(one for one in answers if one.status == 429)
        assert int(answer.headers["retry-after"]) >= 1
        forms = Forms(answer.text)
        assert forms.last == {**fields, "text": TYPED.replace("\r\n", "\n")}
        assert forms.fields["csrf"] == [editor.csrf]


def test_a_form_that_is_too_large_loses_nothing(start: Start) -> None:
    with start(ServerLimits(form_bytes=2000)) as server:
        fill(server.state.live)
        editor = server.browser("editor")
        long = TYPED.replace("\r\n", "\n") + "a" * 2000
        fields = {"base": "1", "message-0": long, "message": "m", "label": "staging"}
        answer = editor.submit(f"/edit/{NAME}", fields)
        assert answer.status == 413 and "larger than 2,000 bytes. Shorten a text" in alert(answer)
        forms = Forms(answer.text)
        assert forms.last == fields and forms.action == f"/edit/{NAME}"
        assert forms.fields["csrf"] == [editor.csrf]
        kept = Forms(server.browser("viewer").submit(f"/edit/{NAME}", fields).text)
        assert kept.last == fields, "nor does one whose sender may not send it"


def test_a_form_that_is_far_too_large_says_where_the_text_may_be(start: Start) -> None:
    with start(ServerLimits(form_bytes=2000)) as server:
        answer = server.browser("editor").submit("/new", {"name": "a/b", "text": "a" * 9000, "message": ""})
        assert answer.status == 413 and "larger than 2,000 bytes" in answer.text
        assert "browser's Back" in html.unescape(answer.text) and "aaaa" not in answer.text


def test_a_strangers_site_gets_no_form(server: Running) -> None:
    browser = server.browser("editor")
    for origin in ("https://evil.example", None):
        answer = browser.submit("/new", {"name": "", "text": "theirs"}, Origin=origin, csrf="")
        assert answer.status == 403 and "theirs" not in answer.text


def test_a_database_that_does_not_answer_leaves_a_plain_form(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(server.state.live)
    editor = server.browser("editor")

    def fail(*args: object, **kwargs: object) -> None:
        raise StorageError("gone")

    monkeypatch.setattr(type(server.state.live.registry), "get", fail)
    forms = refused(editor, f"/edit/{NAME}", {"base": "1", "message-0": SOURCE, "message": "m"}, 503)
    assert forms.last == {"base": "1", "message-0": SOURCE, "message": "m"}


def confirmation(answer: Answer) -> str:
    """The value of the box that confirms."""
    found = re.search(r'name="confirm" value="([0-9a-f]+)"', answer.text)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("do", ["save", "propose"])
def test_a_lost_slot_is_said_before_anything_is_stored(server: Running, do: str) -> None:
    fill(server.state.live)
    editor, registry = server.browser("editor"), server.state.live.registry
    text = SOURCE.replace("{{question}}", "…")
    fields = {"base": "1", "message-0": text, "message": "shorter", "label": "staging", "do": do}
    before = len(registry.versions(NAME).items), len(registry.proposals().items)
    asked = editor.submit(f"/edit/{NAME}", fields)
    assert asked.status == 409 and "{{question}}" in alert(asked)
    assert Forms(asked.text).last["message-0"] == text
    assert (len(registry.versions(NAME).items), len(registry.proposals().items)) == before
    value = confirmation(asked)
    other = editor.submit(f"/edit/{NAME}", {**fields, "message-0": text + "{{query}}", "confirm": value})
    assert other.status == 409 and "{{query}}" in alert(other)  # another change is asked about again
    done = editor.submit(f"/edit/{NAME}", {**fields, "confirm": value})
    assert done.status == 303
    assert sum((len(registry.versions(NAME).items), len(registry.proposals().items))) == sum(before) + 1


def test_programs_are_told_of_slots_that_were_lost_or_gained(server: Running) -> None:
    editor = server.client("editor")
    first = editor.send("/v1/prompts", {"name": "a/b", "text": "Read {{body}} of {{who}}."}).json
    assert first["warnings"] == []
    second = editor.send("/v1/prompts", {"name": "a/b", "text": "Read {{text}} of {{who}}."}).json
    lost, gained = second["warnings"]
    assert (
        "{{body}}" in lost and "{{text}}" in gained and "version 1" in lost and "{{who}}" not in lost + gained
    )
    proposed = editor.send("/v1/proposals", {"base": "a/b@latest", "text": "Read."}).json
    assert len(proposed["warnings"]) == 1 and "{{text}}, {{who}}" in proposed["warnings"][0]
