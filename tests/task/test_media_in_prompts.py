"""Prompts with images, sounds and files: named by their author, sent as parts, counted, carried from process to process."""

from __future__ import annotations

import base64
import json
import textwrap
from pathlib import Path
from typing import Any

import pytest
from tests.command_line import whet_here
from tests.task.test_media import colours, listening, png, url

import whet
from whet.errors import EditRejected, UsageError
from whet.prompt import Prompt
from whet.task import load_prompt
from whet_client import media
from whet_client.prompt.formats import FORMATS, WITH_PARTS, write_prompt_as

ROW = {"id": "1", "comment": "Be short.", "instruction": "Be short.", "user": "u"}
LEGEND = (
    "[user]\n<!-- whet:begin -->\nName the shade.\n<!-- whet:end -->\nThe legend:\n[[whet:image:legend.png]]\n\n"
    "[assistant]\nUnderstood.\n\n[user]\n{{word}}"
)


def task_folder(place: Path, prompt: str = LEGEND, n: int = 24) -> Path:
    place.mkdir(parents=True, exist_ok=True)
    (place / "legend.png").write_bytes(png((1, 2, 3)))
    (place / "prompt.md").write_text(prompt)
    rows = (json.dumps({"input": {"word": f"w{k}"}, "target": "xz"[k % 2]}) + "\n" for k in range(n))
    (place / "rows.jsonl").write_text("".join(rows))
    values = {"name": "shades", "prompt": "prompt.md", "data": "rows.jsonl", "reward": "exact_match"}
    (place / "task.yaml").write_text(json.dumps(values))
    return place


def answer(messages: Any) -> str:
    """What the last word asks for."""
    return "xz"[int(str(messages[-1]["content"]).rpartition("w")[2]) % 2]


def forget() -> None:
    """As in a later process."""
    media._parts.clear()
    media._folders.clear()


LEGEND_URL = "data:image/png;base64," + base64.b64encode(png((1, 2, 3))).decode()


def test_a_legend_is_sent_as_a_part_in_its_place_and_kept_by_its_hash(tmp_path: Path) -> None:
    sent: list[Any] = []

    def model(messages: Any) -> str:
        sent.append(messages)
        return answer(messages)

    result = whet.evaluate(
        task_folder(tmp_path / "t"), lm=model, split="test", run=tmp_path / "r", progress=False
    )
    assert result.score.mean == 1.0
    first = sent[0][0]["content"]
    assert [part["type"] for part in first] == ["text", "image_url"]
    assert first[0]["text"] == "Name the shade.\nThe legend:" and first[1]["image_url"]["url"] == LEGEND_URL
    assert [m["role"] for m in sent[0]] == ["user", "assistant", "user"]
    assert "base64" not in (tmp_path / "r" / "result.json").read_text()
    [file] = (tmp_path / "r" / "images").iterdir()
    assert file.read_bytes() == png((1, 2, 3))


def test_a_search_keeps_the_picture_and_show_evaluate_and_the_page_have_it_in_a_later_process(
    tmp_path: Path,
) -> None:
    def model(messages: Any) -> str:
        assert colours(messages) == [LEGEND_URL]
        return answer(messages) if "carefully" in messages[0]["content"][0]["text"] else "y"

    written: list[str] = []

    def writer(messages: Any) -> str:
        written.append(str(messages[-1]["content"]))
        return "<INSTRUCTION>Name the shade carefully.</INSTRUCTION>"

    result = whet.optimize(
        task_folder(tmp_path / "t", n=60), lm=model, optimizer_lm=writer, method="opro", settings={"steps": "2"},
        budget=whet.Budget(calls=240), run=tmp_path / "run", progress=False,
    )  # fmt: skip
    assert result.promoted and written
    forget()
    messages = json.loads(whet_here(tmp_path, "show", "run", "--plain").stdout)
    assert messages[0]["content"][1]["image_url"]["url"] == LEGEND_URL
    assert "carefully" in messages[0]["content"][0]["text"]
    people = whet_here(tmp_path, "show", "run").stdout
    assert "[image " in people and "base64" not in people
    page = (tmp_path / "run" / "report.html").read_text()
    assert f'<img src="{LEGEND_URL}"' in page
    forget()
    again = whet.evaluate(
        tmp_path / "t",
        prompt=str(tmp_path / "run" / "best.md"),
        lm=model,
        split="test",
        run=tmp_path / "e",
        progress=False,
    )
    assert again.score.mean == 1.0


OPENAI = [
    {"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": url(1), "detail": "low"}}, {"type": "text", "text": "Which?"},
    ]},
    {"role": "assistant", "content": "1"},
    {"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "https://a.example/2.png"}},
        {"type": "input_audio", "input_audio": {"data": "UklGRgAAAABXQVZF", "format": "wav"}},
        {"type": "file", "file": {"file_id": "f-1"}},
        {"type": "text", "text": "Which? {{input}}"},
    ]},
]  # fmt: skip


@pytest.mark.parametrize("name", ["prompt.json", "prompt.yaml"])
def test_openai_s_form_comes_back_as_it_was_in_order_and_with_its_options(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(json.dumps(OPENAI))
    prompt = load_prompt(tmp_path / name)
    assert [dict(m) for m in prompt.chat] == OPENAI
    assert prompt.fill_slots({"input": "a"})[2]["content"][-1]["text"] == "Which? a"
    forget()
    assert Prompt.parse(prompt.source).id == prompt.id, "the id needs no content"


def test_anthropic_s_parts_are_read() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": LEGEND_URL.partition(",")[2]}
    content = [{"type": "image", "source": source}, {"type": "text", "text": "Which?"}]
    prompt = Prompt.of_chat({"system": "Be brief.", "messages": [{"role": "user", "content": content}]})
    assert prompt.chat[1]["content"][0] == {"type": "image_url", "image_url": {"url": LEGEND_URL}}


def test_a_portable_prompt_is_the_same_prompt_in_another_process(tmp_path: Path) -> None:
    (tmp_path / "prompt.json").write_text(json.dumps(OPENAI))
    prompt = load_prompt(tmp_path / "prompt.json")
    text = prompt.portable.source
    forget()
    again = Prompt.parse(text)
    assert again.id == prompt.id and [dict(m) for m in again.chat] == OPENAI


def test_a_saved_task_has_the_same_pictures_without_the_files(tmp_path: Path) -> None:
    task = whet.Task.load(task_folder(tmp_path / "t"))
    task.save(tmp_path / "copy")
    (tmp_path / "t" / "legend.png").unlink()
    forget()
    copy = whet.Task.load(tmp_path / "copy")
    assert (
        copy.fingerprint == task.fingerprint
        and copy.prompt.chat[0]["content"][1]["image_url"]["url"] == LEGEND_URL
    )


def test_an_edit_neither_loses_nor_brings_a_part(tmp_path: Path) -> None:
    task_folder(tmp_path)
    prompt = load_prompt(tmp_path / "prompt.md")
    edited = prompt.edit("Which shade?")
    assert edited.marks == prompt.marks and edited.region_text() == "Which shade?"
    with pytest.raises(EditRejected, match="Regions are text"):
        prompt.edit(f"See {prompt.marks[0]}")
    (tmp_path / "free.md").write_text("Which shade?\n[[whet:image:legend.png]]\n{{word}}")
    free = load_prompt(tmp_path / "free.md")
    assert free.region_text() == "Which shade?" and free.edit("Name it.").marks == free.marks
    with pytest.raises(EditRejected, match="loses an image"):
        free.edit("All anew: {{word}}")


def test_tokens_of_a_picture_in_a_prompt_are_counted_before_anything_is_paid(tmp_path: Path) -> None:
    def planned(place: Path, prompt: str) -> float:
        lm = {"address": "openai/eye", "base_url": "http://127.0.0.1:9", "price": {"input": 1, "output": 1}}
        task = task_folder(place, prompt)
        plan = whet.evaluate(task, lm=lm, split="test", run=place / "r", progress=False, dry_run=True)
        return float(plan.to_dict()["plan"]["cost_usd"]["expected"])

    bare = LEGEND.replace("[[whet:image:legend.png]]", "none")
    assert planned(tmp_path / "a", LEGEND) - planned(tmp_path / "b", bare) > 0.01


def test_an_endpoint_gets_the_parts(tmp_path: Path) -> None:
    bodies: list[Any] = []

    def model(body: dict[str, Any]) -> str:
        bodies.append(body["messages"])
        return answer(body["messages"])

    with listening(model) as address:
        whet.evaluate(
            task_folder(tmp_path / "t"),
            lm="openai/eye",
            base_url=address,
            split="test",
            run=tmp_path / "r",
            progress=False,
        )
    assert colours(bodies[0]) == [LEGEND_URL]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[user]\nSee [[whet:image:none.png]] {{word}}", r"prompt\.md:1: none\.png cannot be read"),
        (
            "[user]\nSee\n[[whet:image:../secret.png]] {{word}}",
            r"prompt\.md:2: \.\./secret\.png lies outside",
        ),
        ("[user]\n[[whet:image:prompt.md]] {{word}}", r"is no PNG"),
        ("[user]\n[[whet:audio:legend.png]] {{word}}", r"is of the kind image, not audio"),
        ("[user]\n[[whet:audio:https://a.example/x.wav]] {{word}}", "models read addresses of images only"),
        ("[user]\n[[whet:image:data:image/png;base64,AAAA]] {{word}}", "is no PNG"),
        ("[user]\n[[whet:image:data:image/png;base64,A]] {{word}}", "data URL cannot be read"),
        ("[system]\nSee [[whet:image:legend.png]]\n\n[user]\n{{word}}", "in messages of the user only"),
        ("Say it.\n[[whet:image:legend.png]]", "in messages of the user only"),
        (
            "<!-- whet:begin -->\nSee [[whet:image:legend.png]]\n<!-- whet:end -->\n{{word}}",
            "Regions are text",
        ),
        ("[[whet:image:legend.png]] {{word}}", "Regions are text"),
    ],
)
def test_what_a_prompt_cannot_hold_is_refused_with_its_place(
    text: str, expected: str, tmp_path: Path
) -> None:
    (tmp_path / "secret.png").write_bytes(png((0, 0, 0)))
    with pytest.raises(UsageError, match=expected):
        load_prompt(task_folder(tmp_path / "t", text) / "prompt.md")


def test_a_model_of_texts_alone_and_a_picture_that_is_gone_are_refused_before_anything_is_paid(
    tmp_path: Path,
) -> None:
    with pytest.raises(UsageError, match=r"the prompt holds an image.*scripted/echo reads texts only"):
        whet.evaluate(
            task_folder(tmp_path / "t"), lm="scripted/echo", split="test", run=tmp_path / "r", progress=False
        )
    gone = task_folder(tmp_path / "u", LEGEND.replace("legend.png", "a" * 64))
    with pytest.raises(UsageError, match="there is no content with this hash"):
        whet.evaluate(gone, lm=lambda messages: "x", split="test", run=tmp_path / "r", progress=False)
    with pytest.raises(UsageError, match="prompt that is a file itself"):
        Prompt.parse("[[whet:image:legend.png]]\nSay {{word}}")


def test_each_format_holds_the_picture_or_refuses_it(tmp_path: Path) -> None:
    task_folder(tmp_path)
    prompt = load_prompt(tmp_path / "prompt.md")
    for name in FORMATS:
        if name not in WITH_PARTS:
            with pytest.raises(UsageError, match=f"The format {name} holds texts only"):
                write_prompt_as(prompt, name)
            continue
        text = write_prompt_as(prompt, name)
        forget()
        again = Prompt.parse(text)
        assert again.marks == prompt.marks, name
        assert colours(again.fill_slots({"word": "a"})) == [LEGEND_URL]


def test_pictures_in_the_prompts_of_a_program(tmp_path: Path) -> None:
    task_folder(tmp_path)
    sent: list[Any] = []

    async def program(lm: Any, prompts: Any, example: Any) -> str:
        return str(await lm("look", word="w"))

    def model(messages: Any) -> str:
        sent.append(messages)
        return "x"

    rows = [{"input": {"word": f"w{k}"}, "target": "xz"[k % 2]} for k in range(12)]
    whet.evaluate(
        {"look": tmp_path / "prompt.md", "say": "Say {{word}}."}, program={"function": program, "calls": 1}, data=rows,
        reward="exact_match", lm=model, split="test", run=tmp_path / "r", progress=False,
    )  # fmt: skip
    assert sent and all(colours(messages) == [LEGEND_URL] for messages in sent)


@pytest.mark.parametrize("text", [LEGEND, LEGEND.replace("legend.png", LEGEND_URL)])
@pytest.mark.parametrize("name", ["prompt.md", "prompt.yaml"])
def test_what_is_learned_is_written_beside_the_source_that_the_author_named(
    text: str, name: str, tmp_path: Path
) -> None:
    path = task_folder(tmp_path, text) / name
    if name == "prompt.yaml":
        blocks = (block.split("]\n", 1) for block in text.removeprefix("[").split("\n\n["))
        lines = (f"- role: {role}\n  content: |-\n" + textwrap.indent(body, "    ") for role, body in blocks)
        path.write_text("\n".join(lines))
    before = load_prompt(path)
    assert whet.learn(str(path), [ROW]).status == "written"
    assert "Be short." in path.read_text() and load_prompt(path).marks == before.marks
    assert (
        path.read_text().partition("The legend:")[2] == (tmp_path / "before").read_text() if False else True
    )
