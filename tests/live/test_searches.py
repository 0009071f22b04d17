"""Searches of the learner: a method within a daily budget, and what it proves as a proposal with its report."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.live.tasks import LM, write_reviews

from whet.cli.main import cli
from whet.errors import UsageError
from whet.prompt import Prompt
from whet.testing.simulated_task import SOURCE, reviews
from whet_client.records import Feedback, Inference
from whet_live.database import Database
from whet_live.erasure import forget_user
from whet_live.learner import Learner, LearnerConfig, PromptSearch, SearchConfig, check_searches
from whet_live.learner.learner_store import LearnerSettings
from whet_live.learner.searching import read_searches, search_prompt
from whet_live.registry import Decision, Registry
from whet_live.traffic import Traffic

NAME = "shop/reviews"
DAY = 86_400_000_000
TODAY = 20_000 * DAY


class Searched:
    """A prompt in production that a simulated model follows, and a search for a better one."""

    def __init__(self, database: Database, root: Path, task: Path | None, **settings: Any) -> None:
        self.registry, self.traffic = Registry(database), Traffic(database)
        self.registry.create(NAME, Prompt.parse(SOURCE), author="ann", label="production")
        chosen = {"method": "opro", "calls": 1200, "lm": LM, "optimizer_lm": "scripted/phrases", **settings}
        self.config = SearchConfig(NAME, task, root=root, **chosen)
        config = LearnerConfig(searches=(self.config,), root=root)
        self.learner = Learner(database, self.registry, self.traffic, config=config)

    def search(self, moment: int = TODAY) -> PromptSearch | None:
        return asyncio.run(search_prompt(self.learner.context, self.config, moment))


@pytest.fixture
def searched(database: Database, tmp_path: Path) -> Searched:
    return Searched(database, tmp_path / "runs", write_reviews(tmp_path, 200))


def test_a_better_prompt_becomes_a_proposal_with_its_report(searched: Searched, tmp_path: Path) -> None:
    found = searched.search()
    assert found is not None and found.state == "proposed", found
    proposal = searched.registry.proposal(str(found.proposal))
    assert (proposal.author, proposal.label, proposal.base) == ("learner", "production", 1)
    assert proposal.gate is not None and proposal.gate["promoted"] and proposal.evidence is not None
    report = proposal.evidence["search"]["report"]
    assert (
        (tmp_path / "runs" / report).is_file()
        and proposal.run is not None
        and proposal.run["method"] == "opro"
    )
    assert searched.search() is None, "one search a day"
    assert searched.search(TODAY + DAY) is None, "its proposal waits"
    searched.registry.decide(proposal.id, Decision("reject", "not now"), actor="ben")
    after = searched.search(TODAY + DAY)
    assert after is not None and after.state == "unchanged" and searched.search(TODAY + DAY) is None
    listed = searched.learner.status(NAME)["searches"]
    assert isinstance(listed, list) and [one["state"] for one in listed] == ["unchanged", "proposed"]


def test_a_killed_search_goes_on_and_pays_nothing_twice(
    searched: Searched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import whet_live.learner.searching as module

    def die(*arguments: object, **more: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(module, "file_proposal", die)
        searched.search()
    (result,) = (tmp_path / "runs").glob("search-*/result.json")
    before = result.read_bytes()
    begun = searched.learner.status(NAME)["searches"]
    assert isinstance(begun, list) and begun[0]["state"] == "open"
    found = searched.search(TODAY + DAY)
    assert found is not None and (found.state, found.day) == ("proposed", begun[0]["day"])
    assert result.read_bytes() == before and len(list((tmp_path / "runs").glob("search-*"))) == 1


def test_a_search_waits_for_nothing_but_a_version_and_ends_when_it_moves(
    searched: Searched, monkeypatch: pytest.MonkeyPatch
) -> None:
    import whet_live.learner.searching as module

    searched.learner.configure(NAME, LearnerSettings("off"), actor="ann")
    assert searched.search() is None, "learning is off"
    searched.learner.configure(NAME, LearnerSettings("propose"), actor="ann")

    def die(*arguments: object, **more: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(module, "aoptimize", die)
        searched.search()
    searched.registry.create(
        NAME, Prompt.parse(SOURCE.replace("eat", "sleep")), author="ann", label="production"
    )
    found = searched.search()
    assert found is not None and (found.state, found.reason) == ("stale", "version 2 stands by now")


def test_a_proposal_for_a_version_that_no_longer_stands_is_taken_back(searched: Searched) -> None:
    found = searched.search()
    assert found is not None and found.proposal is not None
    text = SOURCE.replace("Be quick, and guess freely.", "Mind its tone.")
    searched.registry.create(NAME, Prompt.parse(text), author="ann", label="production")
    searched.search(TODAY + DAY)
    assert searched.registry.proposal(found.proposal).state == "withdrawn"


def test_the_traffic_is_searched_on_and_who_corrected_it_shaped_the_proposal(
    database: Database, tmp_path: Path
) -> None:
    searched = Searched(database, tmp_path / "runs", None)
    answers, rows = [], []
    for n, example in enumerate(reviews(200)):
        answers.append(
            Inference(
                NAME,
                1,
                {"input": example.text},
                "?",
                f"i{n}",
                user=f"u{n}",
                time=TODAY - (200 - n) * 3_600_000_000,
            )
        )
        rows.append(Feedback("correction", f"i{n}", text=str(example.target), user="carl"))
    searched.traffic.add(answers, rows)
    found = searched.search()
    assert found is not None and found.state == "proposed", found
    proposal = searched.registry.proposal(str(found.proposal))
    with pytest.raises(UsageError, match="carl"):
        searched.registry.decide(proposal.id, Decision("approve"), actor="carl")
    assert searched.registry.decide(proposal.id, Decision("approve"), actor="ben")
    assert searched.registry.labels(NAME)["production"] == 2


def test_too_little_traffic_fails_for_the_day_and_says_why(database: Database, tmp_path: Path) -> None:
    searched = Searched(database, tmp_path / "runs", None)
    searched.traffic.add([Inference(NAME, 1, {"input": "x"}, "?", "i1")])
    assert searched.learner.look() == ([], {})
    listed = searched.learner.status(NAME)["searches"]
    assert isinstance(listed, list)
    (found,) = listed
    assert found["state"] == "failed" and "has a target" in found["reason"]


def test_the_command_names_method_and_budget(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    once = ["learn", "--watch", "--once", "--database", sqlite_url, "--search", "p"]
    refused = CliRunner().invoke(cli, [*once, "--search-method", "oppro"])
    assert refused.exit_code and "oppro" in str(refused.exception)
    done = CliRunner().invoke(
        cli, [*once, "--search-method", "opro", "--search-calls-per-day", "50", "--json"]
    )
    assert done.exit_code == 0 and json.loads(done.stdout) == {"updates": [], "failed": {}}


@pytest.mark.parametrize(
    ("names", "why"),
    [(["*"], "every prompt"), (["shop/p@production"], "name"), ([NAME, NAME], "Two searches are for")],
)
def test_a_search_is_for_one_prompt_and_the_only_one(names: list[str], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        check_searches([SearchConfig(name) for name in names])


def _of_traffic(database: Database, root: Path) -> Searched:
    searched = Searched(database, root, None)
    hour = 3_600_000_000
    answers = [
        Inference(NAME, 1, {"input": one.text}, "?", f"i{n}", user=f"u{n}", time=TODAY - (200 - n) * hour)
        for n, one in enumerate(reviews(200))
    ]
    rows = [
        Feedback("correction", f"i{n}", text=str(one.target), user="eva" if n == 7 else "carl")
        for n, one in enumerate(reviews(200))
    ]
    searched.traffic.add(answers, rows)
    return searched


def test_a_proposal_is_taken_back_when_a_row_of_its_task_is_erased(
    database: Database, tmp_path: Path
) -> None:
    searched = _of_traffic(database, tmp_path / "runs")
    found = searched.search()
    assert found is not None and found.state == "proposed"
    assert "rests_on" not in found.as_json()
    forget_user(database, "nobody", actor="ann")
    assert searched.registry.proposal(str(found.proposal)).state == "open"
    forget_user(database, "eva", actor="ann")
    proposal = searched.registry.proposal(str(found.proposal))
    assert proposal.state == "withdrawn"
    assert proposal.prompt == searched.registry.get(NAME).prompt, "its text may quote the user"
    with database.read() as connection:
        (ended,) = read_searches(connection, NAME)
    assert (ended.state, ended.rests_on) == ("stale", [])


@pytest.mark.long
def test_a_search_that_runs_while_its_rows_are_erased_proposes_nothing(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import whet_live.learner.searching as module

    searched = _of_traffic(database, tmp_path / "runs")
    optimize = vars(module)["aoptimize"]

    async def erase(*arguments: Any, **more: Any) -> Any:
        result = await optimize(*arguments, **more)
        forget_user(database, "u3", actor="ann")
        return result

    monkeypatch.setattr(module, "aoptimize", erase)
    found = searched.search()
    assert found is not None and (found.state, found.proposal) == ("stale", None)
    assert not searched.registry.proposals(name=NAME).items
    assert searched.search() is None, "not again on that day"


def test_rows_that_are_erased_while_the_task_is_made_begin_no_search(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import whet_live.learner.searching as module

    searched = _of_traffic(database, tmp_path / "runs")
    make = vars(module)["task_from_traffic"]

    def erase(*arguments: Any) -> None:
        make(*arguments)
        forget_user(database, "u3", actor="ann")

    monkeypatch.setattr(module, "task_from_traffic", erase)
    found = searched.search()
    assert found is not None and found.state == "stale"
    assert not list((tmp_path / "runs").glob("search-*/journal.sqlite")), "nothing is paid"
