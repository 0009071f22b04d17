"""What a report says, for runs in every state, and that it is sound HTML without a road to anywhere."""

from __future__ import annotations

import re
import shlex
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tests.report import runs
from whet.errors import StorageError, UsageError
from whet.prompt import Prompt
from whet.reporting import write_report
from whet.reporting.candidates import MOST_DRAWN
from whet.reporting.cost import command
from whet.search.archive import Candidate, describe_candidate

VOID = {"meta", "br", "hr", "col"}
BUILDERS = (runs.finished, runs.reinforced, runs.hostile, runs.running, runs.stopped)


class Document(HTMLParser):
    """A strict reader: balanced tags, and everything that the tests ask about."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == [], f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"<{tag}> repeats an attribute: {names}"
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self) -> str:
        """All text of the page with single spaces."""
        return " ".join("".join(f"{w}\n" for w in self.words).split())

    def having(self, attribute: str) -> list[str]:
        """All values of an attribute."""
        return [attributes[attribute] for _, attributes in self.tags if attribute in attributes]


def written(build: Any, folder: Path, **changes: Any) -> Document:
    """The report of a built run, read back."""
    path, result = build(folder / "run", **changes)
    return Document(write_report(path, result).read_text("utf-8"))


@pytest.mark.parametrize("build", BUILDERS)
def test_the_page_is_sound(build: Any, tmp_path: Path) -> None:
    page = written(build, tmp_path)
    ids = page.having("id")
    assert len(ids) == len(set(ids))
    for link in page.having("href"):
        assert link.startswith("#")
        assert link[1:] in ids
    for labelled in page.having("aria-labelledby"):
        assert set(labelled.split()) <= set(ids)
    tags = {tag for tag, _ in page.tags}
    assert {"main", "header", "nav", "footer", "h1", "h2"} <= tags
    assert not tags & {"script", "link", "iframe", "object", "img", "form", "base"}
    assert not [
        name for _, attributes in page.tags for name in attributes if name.startswith("on") or name == "src"
    ]
    tables = sum(tag == "table" for tag, _ in page.tags)
    assert sum(tag == "caption" for tag, _ in page.tags) == tables > 0
    assert all(a.get("scope") in ("row", "col") for tag, a in page.tags if tag == "th")


@pytest.mark.parametrize("build", BUILDERS)
def test_every_picture_is_told_in_words_or_hidden(build: Any, tmp_path: Path) -> None:
    page = written(build, tmp_path)
    for at, (tag, attributes) in enumerate(page.tags):
        if tag == "svg" and "aria-hidden" not in attributes:
            assert [inner for inner, _ in page.tags[at + 1 : at + 3]] == ["title", "desc"]
            assert attributes["role"] == "img"


def test_the_policy_allows_styles_only(tmp_path: Path) -> None:
    page = written(runs.finished, tmp_path)
    policies = [a["content"] for tag, a in page.tags if a.get("http-equiv") == "Content-Security-Policy"]
    assert len(policies) == 1
    assert policies[0].startswith("default-src 'none'; style-src 'unsafe-inline'; img-src data:")


def test_the_same_journal_gives_the_same_bytes(tmp_path: Path) -> None:
    folder, result = runs.finished(tmp_path / "run")
    first = write_report(folder, result).read_bytes()
    assert write_report(folder, result).read_bytes() == first


def test_a_promoted_run_says_so_with_its_numbers(tmp_path: Path) -> None:
    folder, result = runs.finished(tmp_path / "run")
    assert result["improvement"]["promoted"]
    page = Document(write_report(folder, result).read_text("utf-8"))
    for score in (result["baseline"]["test"], result["best"]["test"]):
        assert f"{score['mean']:.3f} [{score['low']:.3f} to {score['high']:.3f}]" in page.text
    gain = result["improvement"]
    assert f"+{gain['difference']:.3f} [+" not in page.text
    assert f"+{gain['difference']:.3f} [{gain['low']:.3f} to {gain['high']:.3f}]" in page.text
    assert gain["reason"].partition(": ")[2][1:] in page.text
    assert " Promoted " in page.text
    assert "Not promoted" not in page.text
    assert (
        f"{gain['wins']} got better, {gain['losses']} got worse and {gain['ties']} stayed the same"
        in page.text
    )
    assert "SIMULATED" not in page.text
    assert "2,015" in page.text
    assert "$0.3612" in page.text


def test_no_improvement_is_a_result_too(tmp_path: Path) -> None:
    folder, result = runs.finished(tmp_path / "run", n=12)
    assert not result["improvement"]["promoted"]
    page = Document(write_report(folder, result).read_text("utf-8"))
    assert " Not promoted " in page.text


def test_a_run_that_found_nothing_shows_no_diff(tmp_path: Path) -> None:
    folder, _ = runs.finished(tmp_path / "run")
    rows = runs.final_rows(1, 40, 0.5)
    page = Document(
        write_report(folder, runs.result_of(runs.SOURCE, runs.SOURCE, (rows, rows))).read_text("utf-8")
    )
    assert "There is no change: the best prompt is the baseline." in page.text
    assert "ins" not in {tag for tag, _ in page.tags if tag == "ins"} or "way" in page.having("class")


def test_the_diff_has_signs_as_well_as_colours(tmp_path: Path) -> None:
    folder, result = runs.finished(tmp_path / "run")
    page = Document(write_report(folder, result).read_text("utf-8"))
    at = page.words.index("When two labels fit, take the one that needs a person first.")
    assert page.words[at - 1] == "+"
    at = page.words.index("Say what it is about.")
    assert page.words[at - 1] == "\u2212"


def test_examples_show_what_changed(tmp_path: Path) -> None:
    folder, result = runs.finished(tmp_path / "run")
    page = Document(write_report(folder, result).read_text("utf-8"))
    gain = result["improvement"]
    assert f"Fixed: {gain['wins']} examples" in page.text
    assert f"Broken: {gain['losses']} examples" in page.text
    assert "The customer wants something else:" in page.text
    assert "exact_match" in page.text


def test_failures_are_listed(tmp_path: Path) -> None:
    page = written(runs.finished, tmp_path)
    assert "1 rollout of the sealed test failed" in page.text
    assert "parse: no single label" in page.text


def test_every_candidate_is_there_with_its_parents(tmp_path: Path) -> None:
    folder, result = runs.finished(tmp_path / "run")
    events, best, _ = runs.search_events()
    page = Document(write_report(folder, result).read_text("utf-8"))
    candidates = {value["id"]: value for name, value, _ in events if name in ("candidate", "validated")}
    assert len(candidates) > 10
    assert page.having("class").count("inside") == len(candidates)
    for value in candidates.values():
        assert value["id"] in page.text
    assert result["best"]["id"] == best.prompt.id
    assert "Steps to the best prompt" in page.text
    assert any(link.startswith("#c") for link in page.having("href"))


def test_too_many_candidates_are_counted(tmp_path: Path) -> None:
    page = written(runs.reinforced, tmp_path)
    drawn = [c for c in page.having("class") if c == "inside"]
    assert len(drawn) == MOST_DRAWN
    found = re.search(
        r"([\d,]+) candidates; .* This figure shows the 500 best candidates; ([\d,]+) more are in the journal",
        page.text,
    )
    assert found is not None
    total, left = (int(n.replace(",", "")) for n in found.groups())
    assert total == MOST_DRAWN + left


def test_figures_of_the_method_and_the_control_are_shown(tmp_path: Path) -> None:
    page = written(runs.reinforced, tmp_path)
    assert "mean of 20 steps" in page.text
    assert "Entropy" in page.text
    assert "random_search" in page.text
    assert "Control: random_search" in page.text


def test_a_run_in_progress_promises_nothing(tmp_path: Path) -> None:
    page = written(runs.running, tmp_path)
    assert "Not finished" in page.text
    assert "Validation so far" in page.text
    assert "romoted:" not in page.text
    assert "SIMULATED" in page.text
    assert "Examples fixed" not in page.text


def test_a_stopped_run_says_why_and_what_to_do(tmp_path: Path) -> None:
    page = written(runs.stopped, tmp_path)
    assert "Stopped before the sealed test" in page.text
    assert "has not answered 40 attempts in a row. To continue, run the same command again." in page.text


def test_a_run_that_only_began_has_a_report(tmp_path: Path) -> None:
    folder = runs.write_journal(tmp_path / "run", [])
    page = Document(write_report(folder, None).read_text("utf-8"))
    assert "no header in the journal" in page.text
    assert "Not finished" in page.text


def test_warnings_and_openings_are_shown(tmp_path: Path) -> None:
    page = written(runs.finished, tmp_path, warnings=["First thing.", "Second thing."])
    assert "2 warnings" in page.text
    assert "Second thing." in page.text
    assert "This was opening 2 of these test rows" in page.text


def test_unknown_records_of_a_method_are_shown_as_written(tmp_path: Path) -> None:
    events = [runs.event("conflict", {"kept": "a", "dropped": ["b", i]}, i) for i in range(30)]
    folder = runs.write_journal(tmp_path / "run", events)
    page = Document(write_report(folder, None).read_text("utf-8"))
    assert "30 records, the last 20 of 30" in page.text
    assert 'kept: a, dropped: ["b",29]' in page.text
    assert '["b",9]' not in page.text


def test_a_ring_of_parents_ends(tmp_path: Path) -> None:
    prompts = [Prompt.parse(f"Say {word}.") for word in ("one", "two")]
    events = [
        runs.event(
            "validated",
            {
                **describe_candidate(Candidate(p, (o.id,), "swap")),
                "validation": 0.5,
                "n": 3,
                "incumbent": True,
            },
            1,
        )
        for p, o in (prompts, prompts[::-1])
    ]
    page = Document(write_report(runs.write_journal(tmp_path / "run", events), None).read_text("utf-8"))
    assert "2 candidates" in page.text


def test_hostile_text_arrives_as_text(tmp_path: Path) -> None:
    page = written(runs.hostile, tmp_path)
    assert runs.HOSTILE in "".join(page.words)
    raw = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert not set(raw) & set("\u202e\u202c\u2066\u2069\u200b\u00ad\u2028\ufeff\x07\x1b\x7f\x85\r")
    assert "<script" not in raw
    assert raw.count("<style") == raw.count("</style>") == 1


def test_a_giant_text_is_cut_in_lists_but_whole_in_the_diff(tmp_path: Path) -> None:
    page = written(runs.hostile, tmp_path)
    assert sum(len(w) for w in page.words) < 1_500_000
    assert any(len(w) > 100_000 for w in page.words)
    assert "more characters" in page.text


def test_the_command_repeats_every_choice() -> None:
    header = runs.header_of(config={"depth": 6, "examples": None, "greedy": True, "words": "a b'c"})
    assert command(header).replace(" \\\n ", "") == (
        "whet optimize TASK --method protegi --lm openai/small-model --optimizer-lm openai/large-model "
        "--max-calls 6000 --max-cost 2.5 --set depth=6 --set examples=none --set greedy=true "
        "--set 'words=a b'\"'\"'c' --seed 0"
    )


def test_a_folder_without_a_journal_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no journal"):
        write_report(tmp_path, None)


def test_a_write_that_fails_leaves_the_old_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, result = runs.finished(tmp_path / "run")
    before = write_report(folder, result).read_bytes()

    def refuse(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(StorageError, match="No space left"):
        write_report(folder, {**result, "task": "another"})
    assert (folder / "report.html").read_bytes() == before
    assert [p.name for p in folder.glob("*partial*")] == []


@pytest.mark.parametrize("pinned", ["hf/models/small", "runs/a b/checkpoint (0123456789abcdef)"])
def test_the_command_names_the_policy_that_was_trained(pinned: str) -> None:
    given = command({"method": "prewrite", "models": {"task": "openai/a", "policy": pinned}, "seed": 3})
    asked = shlex.split(given.replace("\\\n", " "))
    assert asked[asked.index("--policy") + 1] == pinned.removesuffix(" (0123456789abcdef)")
