#!/usr/bin/env python3
"""Check that README and docs are true: scripts/check_docs.py [--write] [PAGE ...]

On every page: relative links, images and anchors lead somewhere; paths, tests, make targets in `code` exist; so do
the options, methods and settings of every `whet ...` command, and the file and options of every `python ...` command;
YAML is what a task file may say, JSON and TOML can be read; every python block without a file name runs (all of a
page in one namespace, in a folder with the python files of the page only, without network) and prints what a text
block below it shows; figures are those of docs/figures.md (--write updates them). Over all pages: docs/reference is
current (scripts/make_reference.py writes it), each method has file and page, every figure has its command, date,
machine and model, docs/index.md links every page. Prints file:line; exit code 1 for a finding.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import tomllib
import traceback
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [
    str(ROOT / name) for name in ("src", "packages/whet-client", "packages/whet-live", "scripts", ".")
]

import click  # noqa: E402
import make_reference  # noqa: E402

from whet.api.study import read_components  # noqa: E402
from whet.cli.main import cli  # noqa: E402
from whet.errors import UsageError  # noqa: E402
from whet.methods import METHODS, configure, get_method  # noqa: E402
from whet.rewards import build_reward  # noqa: E402
from whet.task import load_prompt  # noqa: E402
from whet.task.environment import read_environment  # noqa: E402
from whet.task.load import KEYS  # noqa: E402
from whet.task.spec import read_budget, read_models, read_splits  # noqa: E402
from whet.task.tree import parse_yaml  # noqa: E402

FIGURES = ROOT / "docs" / "figures.md"

FENCED = re.compile(r"(?ms)^```([\w-]*)[ \t]*([^\n]*)\n(.*?)^```$(?:\n+```text\n(.*?)^```$)?")
FIGURE = re.compile(r"(<!-- figure: (\S+) -->)(.*?)(<!-- /figure -->)", re.DOTALL)
SOURCE = re.compile(
    r"(?m)^Command: (.+)\. Date: \d{4}-\d\d-\d\d\. Machine: .+\. Model: (simulated|embedded|real|none)\b.*\.$"
)
LINK = re.compile(r"\]\(([^)\s]+)[^)]*\)")
CODE = re.compile(r"(`+)(.+?)\1")
PATH = re.compile(r"(?:src|packages|tests|docs|benchmarks|scripts|examples|requirements)/[\w./-]*(?:::\w+)?")


class Block(NamedTuple):
    """A fenced block: language and name behind the fence, text, output shown below it, line of the fence."""

    language: str
    name: str
    text: str
    shows: str | None
    line: int


def parse(text: str) -> tuple[list[Block], list[tuple[int, str]]]:
    """The fenced blocks of a page, and all other lines with their numbers."""
    blocks = [Block(m[1], m[2], m[3], m[4], text[: m.start()].count("\n") + 1) for m in FENCED.finditer(text)]
    prose = FENCED.sub(lambda match: "\n" * match[0].count("\n"), text)
    return blocks, list(enumerate(prose.splitlines(), 1))


def check_page(page: Path) -> list[str]:
    """Everything that is wrong on one page, as `file:line: what`."""
    text = page.read_text("utf-8")
    blocks, prose = parse(text)
    problems = [
        (text[: m.start()].count("\n") + 1, wrong)
        for m in FIGURE.finditer(text)
        if (wrong := wrong_figure(m))
    ]
    for number, line in prose:
        if line.startswith("```"):
            problems.append((number, "this block is never closed"))
        problems += [(number, problem) for problem in wrong_links(page, CODE.sub("", line))]
        problems += [
            (number, problem) for _, code in CODE.findall(line) for problem in wrong_names(code.strip())
        ]
    lines = [(number, line[4:]) for number, line in prose if line.startswith("    ")]
    for block in (b for b in blocks if b.language in ("", "console", "bash", "sh")):
        lines += enumerate(re.sub(r"\\\n\s*", "", block.text).splitlines(), block.line + 1)
    problems += [
        (number, problem)
        for number, line in lines
        if (problem := wrong_command(line, True) or wrong_program(line))
    ]
    problems += [(b.line, problem) for b in blocks if (problem := wrong_data(b))]
    return [f"{page}:{number}: {problem}" for number, problem in problems] + run_python(page, blocks)


@functools.cache
def figures() -> dict[str, str]:
    """Every cell of the tables in docs/figures.md, by section/row/column; those of a row that is there twice are left out."""
    cells: dict[str, list[str]] = {}
    section, columns = "", []
    for line in FIGURES.read_text("utf-8").splitlines():
        if line.startswith("#"):
            section = slug(line.lstrip("# "))
        if not line.startswith("|"):
            columns = []
        elif set(line) - set("|-: "):
            row = [cell.strip().replace("**", "") for cell in line.strip("|").split("|")]
            for column, value in zip(columns, row[1:], strict=False):
                cells.setdefault(f"{section}/{key(row[0])}/{column}", []).append(value)
            columns = columns or [key(cell) for cell in row[1:]]
    return {name: values[0] for name, values in cells.items() if len(values) == 1}


def key(cell: str) -> str:
    """The first cell of a row, or of a column, as a part of a figure's name."""
    return re.sub("-+", "-", slug(cell)).strip("-")


def wrong_figure(match: re.Match[str]) -> str | None:
    """Why a figure on a page is not the one in docs/figures.md."""
    measured = figures().get(match[2])
    if match[2].isupper():  # a placeholder, as in SECTION/ROW/COLUMN
        return None
    if measured is None:
        return f"docs/figures.md has no figure {match[2]}"
    return None if measured == match[3] else f"the figure {match[2]} is {measured}: run this with --write"


def current(match: re.Match[str]) -> str:
    """A figure on a page, with the value that docs/figures.md has."""
    return match[1] + figures().get(match[2], match[3]) + match[4]


def wrong_sources() -> Iterator[str]:
    """Sections of docs/figures.md that have a table and do not say where it comes from."""
    for part in re.split(r"(?m)^(?=##? )", FIGURES.read_text("utf-8")):
        if "\n|" in part and not SOURCE.search(part):
            title = part.partition("\n")[0].strip("# ")
            yield f"docs/figures.md:1: {title}: the line with Command, Date, Machine and Model is missing"


def wrong_links(page: Path, line: str) -> Iterator[str]:
    """Relative links and images of a line that lead nowhere."""
    for target in LINK.findall(line):
        file, _, anchor = target.partition("#")
        there = page.parent / file if file else page
        known = there.exists() and (not anchor or there.suffix != ".md" or anchor in anchors(there))
        if not known and re.match(r"[a-z]+:", target) is None:
            yield f"the link {target} leads nowhere"


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    lines = [line for _, line in parse(page.read_text("utf-8"))[1] if re.match(r"#+ ", line)]
    return {slug(line.lstrip("#")) for line in lines}


def slug(text: str) -> str:
    """A heading as an anchor."""
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")


def wrong_names(code: str) -> Iterator[str]:
    """What is wrong with a piece of `code` in running text: a command, a make target, a path, a test."""
    file, _, test = code.partition("::")
    if problem := wrong_command(code, False) or wrong_program(code):
        yield problem
    elif make := re.fullmatch(r"make ([a-z-]+)", code):
        if not re.search(rf"^{make[1]}:", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE):
            yield f"the Makefile has no target {make[1]}"
    elif PATH.fullmatch(code) and not re.search("NAME|TASK", code):
        if not (ROOT / file).exists():
            yield f"there is no {file}"
        elif test and f"def {test}(" not in (ROOT / file).read_text("utf-8"):
            yield f"there is no {test} in {file}"


def wrong_data(block: Block) -> str | None:
    """Why a block of data cannot be read, or why whet would refuse it."""
    try:
        if block.language == "yaml":
            for document in documents(block.text):
                check_yaml(document)
        elif block.language == "toml":
            tomllib.loads(block.text)
        elif block.language == "json":
            for line in [block.text] if block.text.count("\n{") == 0 else block.text.splitlines():
                json.loads(line)
    except (UsageError, ValueError) as error:
        return f"this cannot be read: {' '.join(str(error).split())}"
    return None


def documents(text: str) -> list[str]:
    """A YAML block in parts: a key that comes again begins another one."""
    parts: list[str] = [""]
    for line in text.splitlines(keepends=True):
        key = re.match(r"\w+:", line)
        parts += [""] if key and re.search(rf"(?m)^{key[0]}", parts[-1]) else []
        parts[-1] += line
    return parts


def check_yaml(text: str) -> None:
    """Raises UsageError for what is neither a part of a task file nor a prompt nor a file of components."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file in re.findall(r"\b\w+\.(?:md|py|yaml)\b", text):
            program = 'def reward(example, output):\n    """A reward, or a tool."""\n    return 1.0\n'
            program += '\n\ndef make(row):\n    """A game."""\n'
            (folder / file).write_text(program if file.endswith(".py") else "A text.", "utf-8")
        (folder / "block").write_text(text, "utf-8")
        root = parse_yaml(folder / "block")
        if isinstance(root.value, list):
            load_prompt((folder / "block").rename(folder / "prompt.yaml"))
            return
        if "parts" in root.value:
            read_components(folder / "block")
            return
        keys = root.mapping("the task file", KEYS)
        readers = {"models": read_models, "budget": read_budget, "splits": read_splits}
        for key in readers.keys() & keys:
            readers[key](keys[key])
        read_environment(keys, folder)
        for key in {"reward", "second_opinion"} & keys.keys():
            if ".safetensors" not in text:
                build_reward(keys[key].plain(), folder, keys[key].where)
        if "method" in keys:
            configure(
                get_method(keys["method"].plain()), keys["settings"].plain() if "settings" in keys else {}
            )


def wrong_program(line: str) -> str | None:
    """What is wrong with a `python FILE` or `python -m MODULE` of the repository: no such file, or an option it does not name."""
    command = re.match(r"(?:\$ )?python (?:-m ([\w.]+)|(\w[\w/]*\.py))(.*)", line)
    module, file = (command[1] or "", command[2] or "") if command else ("", "")
    if not re.match(r"(?:benchmarks|examples|scripts|tools|whet)\b", module or file):
        return None
    path = (
        ROOT / "src" / module.replace(".", "/")
        if module.startswith("whet")
        else ROOT / (file or module.replace(".", "/"))
    )
    path = path if file or path.is_dir() else path.with_suffix(".py")
    if not path.exists():
        return f"there is no {path.relative_to(ROOT)}"
    source = "".join(p.read_text("utf-8") for p in ([path] if path.is_file() else sorted(path.glob("*.py"))))
    options = re.findall(r"(?<= )--[a-z][\w-]*", command[3].partition("#")[0]) if command else []
    named = {word.replace("_", "-") for word in re.findall(r"\w[\w-]*", source)} | {"help"}
    missing = [option for option in options if option.removeprefix("--") not in named]
    return f"{path.relative_to(ROOT)} has no option {missing[0]}" if missing else None


def wrong_command(line: str, strict: bool) -> str | None:
    """What is wrong with a `whet ...` command line; a missing argument matters only when `strict`."""
    line = line.removeprefix("$ ")
    if not line.startswith("whet ") or "..." in line or "[" in line:
        return None
    words = shlex.split(line, comments=True)
    end = next((i for i, word in enumerate(words) if re.match(r"[|&;<>]|2>", word)), len(words))
    rest, shown = words[1:end], " ".join(words[:end])
    command: click.Command | None = cli
    above, name = click.Context(cli, **cli.context_settings), "whet"
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        name, *rest = rest
        command = command.get_command(above, name)
    if command is None:
        return f"{shown}: No such command."
    if isinstance(command, click.Group) or {"--help", "-h"} & set(rest):
        return None
    try:
        check_methods(command.make_context(name, [*rest], parent=above).params)
    except click.UsageError as error:
        skip = isinstance(error, click.MissingParameter) and not strict
        return None if skip or stands_for_something(error, rest) else f"{shown}: {error.format_message()}"
    except UsageError as error:
        return f"{shown}: {error}"
    return None


def stands_for_something(error: click.UsageError, rest: list[str]) -> bool:
    """Whether an argument was refused for being a placeholder (VERSION) or a file that the reader has to have."""
    if not isinstance(error, click.BadParameter) or not isinstance(error.param, click.Argument):
        return False
    return isinstance(error.param.type, click.Path) or any(re.fullmatch("[A-Z_]+", word) for word in rest)


def check_methods(arguments: dict[str, Any]) -> None:
    """Methods and settings that a command names. Raises UsageError for one that does not exist."""
    settings = arguments.get("settings") or {}
    get_method(arguments.get("control") or "random_search")
    for name in (arguments.get("method") or arguments.get("methods") or "NAME").split(","):
        if not name.isupper():
            own = {k.removeprefix(f"{name}."): v for k, v in settings.items()}
            configure(get_method(name), {k: v for k, v in own.items() if "." not in k})


def run_python(page: Path, blocks: list[Block]) -> list[str]:
    """Run the python blocks of a page in a process of their own; what went wrong."""
    if ("python", "") not in [block[:2] for block in blocks]:
        return []
    env = {k: v for k, v in os.environ.items() if not k.startswith("OPENAI_")}
    command = [sys.executable, str(Path(__file__).resolve()), "--run", str(page.resolve())]
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as state:
        env["WHET_STATE"] = state
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=600)
    if done.returncode not in (0, 1) or (done.returncode == 1 and not done.stdout):
        return [f"{page}:1: the python blocks ended the process: {done.stderr.strip()}"]
    return [f"{page}:{problem}" for problem in done.stdout.splitlines()]


def run_blocks(page: Path) -> int:
    """Run the python blocks of a page in this process; prints `line: what` for the first that fails."""
    sys.addaudithook(stay_offline)
    module = sys.modules["page"] = types.ModuleType("page")
    blocks = parse(page.read_text("utf-8"))[0]
    write_files(blocks, Path.cwd())
    sys.path.insert(0, str(Path.cwd()))
    for block in blocks:
        if block[:2] != ("python", ""):
            continue
        printed = io.StringIO()
        try:
            code = compile("\n" * block.line + block.text, str(page), "exec", dont_inherit=True)
            with contextlib.redirect_stdout(printed):
                exec(code, module.__dict__)  # noqa: S102 - the code stands in our own docs
        except Exception as error:
            lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(page)]
            line = lines[-1] if lines else getattr(error, "lineno", block.line)
            print(f"{line}: {type(error).__name__}: {' '.join(str(error).split())}")
            return 1
        if block.shows is not None and printed.getvalue().rstrip() != block.shows.rstrip():
            print(f"{block.line}: the block prints {printed.getvalue()!r}, the page shows {block.shows!r}")
            return 1
    return 0


def write_files(blocks: list[Block], folder: Path) -> None:
    """Save the python blocks with a file name in a folder, so that other blocks can import them."""
    for block in blocks:
        if block.language == "python" and block.name.endswith(".py"):
            (folder / block.name).parent.mkdir(parents=True, exist_ok=True)
            (folder / block.name).write_text(block.text, "utf-8")


def stay_offline(event: str, arguments: tuple[Any, ...]) -> None:
    """Audit hook: examples talk to this machine only."""
    host = arguments[0] if event == "socket.getaddrinfo" else None
    if event == "socket.connect" and isinstance(arguments[1], tuple):
        host = arguments[1][0]
    if host not in (None, "localhost", "127.0.0.1", "::1", b"127.0.0.1"):
        raise PermissionError(f"examples must not need the network; this one asks for {host}")


def check_whole() -> list[str]:
    """What is wrong between the pages and the program."""
    table, docs = "src/whet/methods/__init__.py:1", ROOT / "docs"
    files = {p.stem for p in (ROOT / "src/whet/methods").glob("*.py")} - {"__init__", "method"}
    described = {p.stem for p in (docs / "methods").glob("*.md")}
    problems = [f"{table}: the method {name} has no file of its own" for name in METHODS.keys() - files]
    problems += [f"{table}: {name}.py is no row of the table" for name in files - METHODS.keys()]
    problems += [f"{table}: the method {name} has no page" for name in METHODS.keys() - described]
    problems += [
        f"{path.relative_to(ROOT)}:1: not current: run scripts/make_reference.py"
        for path, text in make_reference.pages().items()
        if not path.is_file() or path.read_text("utf-8") != text
    ]
    linked = {docs / t.partition("#")[0] for t in LINK.findall((docs / "index.md").read_text("utf-8"))}
    pages = {*docs.rglob("*.md")} - {docs / "index.md", *(docs / "methods" / f"{n}.md" for n in METHODS)}
    problems += [f"docs/index.md:1: {page.relative_to(docs)} is not linked" for page in pages - linked]
    return sorted([*problems, *wrong_sources()])


def main() -> int:
    """Read the command line; 1 when something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("pages", nargs="*", type=Path)
    parser.add_argument("--write", action="store_true", help="update the figures first")
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    if (arguments := parser.parse_args()).run is not None:
        return run_blocks(arguments.run)
    os.chdir(ROOT)
    folders = (".", "docs", "docs/methods", "docs/reference", "examples/*")
    pages = arguments.pages or sorted(page for folder in folders for page in Path().glob(f"{folder}/*.md"))
    for page in pages if arguments.write else ():
        page.write_text(FIGURE.sub(current, page.read_text("utf-8")), "utf-8")
    problems = [problem for page in pages for problem in check_page(page)] + (
        [] if arguments.pages else check_whole()
    )
    print("\n".join(problems) or f"{len(pages)} pages are true.")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
