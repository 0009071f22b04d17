"""Several tasks and several task models on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command_line import whet_here

MODELS = "scripted/labels?words=evidence,tone&harmful=brief,scripted/labels?words=carefully&harmful=likely"
OPTIONS = ("--optimizer-lm", "scripted/phrases", "--method", "opro", "--max-calls", "1500")


def write_member(folder: Path, name: str, n: int, prompt: str) -> None:
    where = folder / name
    where.mkdir(parents=True)
    words = {"good": "positive", "bad": "negative"}
    rows = [{"input": f"{name} {i} was {w}.", "target": t} for i in range(n) for w, t in words.items()]
    (where / "data.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    (where / "prompt.md").write_text(prompt, "utf-8")
    (where / "task.yaml").write_text(
        f"name: {name}\nprompt: prompt.md\ndata: data.jsonl\nreward: exact_match\nlabels: [positive, negative]\n",
        "utf-8",
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WHET_STATE", str(tmp_path / "state"))
    write_member(tmp_path, "dishes", 40, "Review of a dish: {{input}}")
    write_member(tmp_path, "films", 20, "Review of a film: {{input}}")
    both = tmp_path / "both"
    both.mkdir()
    (both / "prompt.md").write_text("Sort the review. Be quick.", "utf-8")
    (both / "task.yaml").write_text("name: both\nprompt: prompt.md\ntasks: [../dishes, ../films]\n", "utf-8")
    return tmp_path


def test_two_folders_share_a_prompt(folder: Path) -> None:
    done = whet_here(folder, "optimize", "both", *OPTIONS, "--lm", "scripted/labels", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert set(result["cases"]) == {"dishes", "films"}
    assert [case["test"] for case in result["plan"]["cases"]] == [24, 12]
    assert "2 cases; a prompt is worth the mean over cases" in done.stderr
    shown = whet_here(folder, "optimize", "both", *OPTIONS, "--lm", "scripted/labels")
    assert "films" in shown.stdout and "difference, alone" in shown.stdout
    assert "Cases" in (folder / "runs/both-opro-0/report.html").read_text("utf-8")


def test_advice_leaves_out_methods_that_are_refused_and_rows_that_cannot_be_added(folder: Path) -> None:
    advice = json.loads(whet_here(folder, "advise", "both", "--lm", "scripted/labels", "--json").stdout)
    fitting = {row["name"] for row in advice["methods"]}
    assert {"gepa", "metaspo"} <= fitting and not {"bdpl", "rlprompt", "reanchor"} & fitting
    words = ("optimize", "both", "--lm", "scripted/labels", "--method", "random_search", "--set", "n=4")
    shown = whet_here(folder, *words)
    assert shown.returncode == 0 and "--more" not in shown.stdout, shown.stdout
    refused = whet_here(folder, *words, "--more", "dishes/data.jsonl")
    assert refused.returncode == 2 and "rows cannot be added" in refused.stderr


def test_several_models_and_the_worst_of_them(folder: Path) -> None:
    words = ("optimize", "dishes", *OPTIONS, "--task-lms", MODELS, "--aggregate", "worst", "--json")
    done = whet_here(folder, *words)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["aggregate"] == "worst" and set(result["models"]) == {"task", "task2", "optimizer"}
    assert list(result["cases"]) == [
        one.strip() for one in MODELS.replace(",scripted", "|scripted").split("|")
    ]
    plan = json.loads(whet_here(folder, *words, "--dry-run", "--seed", "1").stdout)
    assert plan["status"] == "planned" and len(plan["plan"]["cases"]) == 2


def test_evaluate_and_compare_take_several_models_too(folder: Path) -> None:
    done = whet_here(folder, "evaluate", "both", "--task-lms", MODELS, "--json")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["score"]["cases"]) == 4
    compared = whet_here(
        folder,
        *("compare", "dishes", "--methods", "opro,random_search", "--task-lms", MODELS, "--reader", "none"),
        *("--optimizer-lm", "scripted/phrases", "--max-calls", "900", "--json"),
    )
    assert compared.returncode == 0, compared.stderr
    found = json.loads(compared.stdout)["methods"]
    assert {row["method"] for row in found} == {"opro", "random_search"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("tasks: [../dishes]", "task.yaml:3: `tasks` names 1 task. Name two or more."),
        ("tasks: [../dishes, ../nowhere]", "nowhere: there is no such task folder"),
        ("tasks: [../dishes, ../films]\ndata: x.jsonl", "task.yaml:4: `data` belongs to one task"),
        ("tasks: [../dishes, ../films]\naggregate: best", "aggregate"),
    ],
)
def test_a_folder_that_cannot_be_used_is_refused_with_its_line(folder: Path, change: str, said: str) -> None:
    (folder / "both/task.yaml").write_text(f"name: both\nprompt: prompt.md\n{change}\n", "utf-8")
    done = whet_here(folder, "optimize", "both", "--lm", "scripted/labels", *OPTIONS)
    assert done.returncode == 2 and said in done.stderr, done.stderr
    assert not (folder / "runs").exists()


def test_one_model_and_several_are_not_named_together(folder: Path) -> None:
    done = whet_here(folder, "evaluate", "dishes", "--task-lms", MODELS, "--lm", "scripted/labels")
    assert done.returncode == 2 and "Omit one of the two options" in done.stderr
    done = whet_here(folder, "evaluate", "dishes", "--lm", "scripted/labels", "--aggregate", "worst")
    assert done.returncode == 2 and "--aggregate worst" in done.stderr
