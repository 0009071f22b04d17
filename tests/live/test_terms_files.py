"""What an export carries beside texts: locks, dates and reviews of instructions, and protections of labels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from whet.cli.main import cli
from whet.errors import UsageError
from whet.prompt import Prompt
from whet_live import Live
from whet_live.database import open_database
from whet_live.learner import export_prompts, import_prompts
from whet_live.learner.terms import all_terms
from whet_live.registry import ANY_PROMPT

TEXT = "Answer {{q}}.\n<!-- whet:begin -->\n- Be polite.\n- Wish people a merry winter.\n<!-- whet:end -->\n"
DATES = ["..", "12-01..01-06", "2026-12-01..", "..2026-12-31"]
TERMS = st.fixed_dictionaries(
    {
        "locked": st.booleans(),
        "dates": st.sampled_from(DATES),
        "review": st.sampled_from(["", "2027-03-01"]),
        "actor": st.sampled_from(["ann", "eve"]),
        "reason": st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20),
    }
)


def filled(path: Path) -> Live:
    """Two prompts with a label and two instructions each."""
    live = Live(open_database(f"sqlite:///{path}"))
    for name in ("shop", "shop/help"):
        live.registry.create(name, Prompt.parse(TEXT), author="ann", label="production")
    return live


def state(live: Live) -> Any:
    """Everything that an export is to carry."""
    with live.database.read() as connection:
        terms = {name: all_terms(connection, name) for name in ("shop", "shop/help")}
    versions = {
        name: [one.as_json() for one in live.registry.versions(name).items] for name in ("shop", "shop/help")
    }
    labels = {name: live.registry.labels(name) for name in versions}
    return terms, versions, labels, live.registry.protections()


@settings(max_examples=12, deadline=None)
@given(
    st.dictionaries(st.sampled_from([(n, i) for n in ("shop", "shop/help") for i in ("i1", "i2")]), TERMS),
    st.sets(st.tuples(st.sampled_from(["shop", "shop/help", ANY_PROMPT]), st.sampled_from(["production", "beta"]))),
)  # fmt: skip
def test_what_is_exported_and_imported_is_the_same(
    tmp_path_factory: pytest.TempPathFactory,
    terms: dict[tuple[str, str], Any],
    protected: set[tuple[str, str]],
) -> None:
    folder = tmp_path_factory.mktemp("round")
    live, copy = filled(folder / "old.db"), Live(open_database(f"sqlite:///{folder / 'new.db'}"))
    for (name, key), one in terms.items():
        live.learner.set_terms(name, key, **one)
    for name, label in protected:
        live.registry.protect(name, label, actor="root")
    export_prompts(live.registry, folder / "out")
    import_prompts(copy.registry, folder / "out", actor="mel")
    assert state(copy) == state(live)
    assert copy.registry.verify_audit().whole
    import_prompts(copy.registry, folder / "out", actor="mel", labels=True)
    assert state(copy) == state(live)
    for one in (live, copy):
        one.database.close()


def test_an_import_into_prompts_that_are_there_changes_their_terms_only_when_asked(tmp_path: Path) -> None:
    live = filled(tmp_path / "old.db")
    export_prompts(live.registry, tmp_path / "out")
    copy = Live(open_database(f"sqlite:///{tmp_path / 'third.db'}"))
    import_prompts(copy.registry, tmp_path / "out", actor="mel")
    live.learner.set_terms("shop", "i2", locked=True, actor="eve", reason="the law")
    live.registry.protect("shop", "production", actor="root")
    live.registry.protect(ANY_PROMPT, "beta", actor="root")
    export_prompts(live.registry, tmp_path / "out")
    before = state(copy)
    import_prompts(copy.registry, tmp_path / "out", actor="mel")
    assert state(copy) == before
    import_prompts(copy.registry, tmp_path / "out", actor="mel", labels=True)
    assert state(copy)[0] == state(live)[0] and state(copy)[3] == state(live)[3]
    entry = next(one for one in copy.registry.audit().items if one.action == "instruction.lock")
    assert (entry.actor, entry.details["terms_by"], entry.details["terms_reason"]) == (
        "mel",
        "eve",
        "the law",
    )
    live.learner.set_terms("shop", "i2", locked=False, actor="eve")
    live.registry.unprotect("shop", "production", actor="root")
    export_prompts(live.registry, tmp_path / "out")
    import_prompts(copy.registry, tmp_path / "out", actor="mel", labels=True)
    assert copy.registry.is_protected("shop", "production"), "an import takes no protection away"
    for one in (live, copy):
        one.database.close()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"instruction": "i9"}, "no version of shop has the instruction i9"),
        ({"dates": "soon"}, "does not say FIRST..LAST"),
        ({"locked": "yes"}, "does not describe terms"),
        ({"actor": ""}, "@terms.json"),
        ({"at": "noon"}, "@terms.json"),
    ],
)
def test_spoilt_terms_are_refused_and_nothing_is_imported(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    live, copy = filled(tmp_path / "old.db"), Live(open_database(f"sqlite:///{tmp_path / 'new.db'}"))
    live.learner.set_terms("shop", "i2", locked=True, actor="eve")
    export_prompts(live.registry, tmp_path / "out")
    path = tmp_path / "out" / "shop" / "@terms.json"
    (row,) = orjson.loads(path.read_bytes())["instructions"]
    path.write_bytes(orjson.dumps({"instructions": [{**row, **change}]}))
    with pytest.raises(UsageError, match=said):
        import_prompts(copy.registry, tmp_path / "out", actor="mel")
    assert not copy.registry.exists("shop")
    for one in (live, copy):
        one.database.close()


def test_the_commands_carry_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    live = filled(tmp_path / "old.db")
    live.learner.set_terms("shop", "i2", locked=True, dates="12-01..01-06", actor="eve")
    live.registry.protect("shop", "production", actor="root")
    live.registry.protect(ANY_PROMPT, "beta", actor="root")
    before = state(live)
    live.database.close()

    def run(database: str, *arguments: str) -> str:
        monkeypatch.setenv("WHET_DATABASE_URL", f"sqlite:///{tmp_path / database}")
        done = CliRunner().invoke(cli, ["prompts", *arguments], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.stdout

    assert "do not hold" not in run("old.db", "export", str(tmp_path / "out"))
    assert "Protected on every prompt: beta" in run("new.db", "import", str(tmp_path / "out"))
    copy = Live(open_database(f"sqlite:///{tmp_path / 'new.db'}"))
    assert state(copy) == before
    copy.database.close()
    some = run("old.db", "export", str(tmp_path / "some"), "shop")
    assert "The files do not hold what is protected on every prompt: beta." in some
    assert json.loads((tmp_path / "some" / "shop" / "@protected.json").read_text()) == {
        "labels": ["production"]
    }
