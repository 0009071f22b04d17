#!/usr/bin/env python3
"""Check that README and docs are true: scripts/check_docs.py [--write] [PAGE ...]

On every page: relative links, images and anchors lead somewhere; paths, tests, make targets in `code` exist;
so do the options, methods and settings of every `whet ...` command; YAML can be read; every python block without a file name
runs (all of a page in one namespace, in an empty folder, without network) and prints what a text block below
it shows; generated parts are current (--write updates them). Over all pages: each method has file and page,
docs/cli.md shows every command, docs/index.md links every page. Prints file:line; exit code 1 for a finding.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
import traceback
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

import click  # noqa: E402
import yaml  # noqa: E402
from click.testing import CliRunner  # noqa: E402

from whet.cli.main import cli  # noqa: E402
from whet.errors import UsageError  # noqa: E402
from whet.methods import METHODS, MethodEntry, configure, get_method  # noqa: E402

FENCED = re.compile(r"(?ms)^```([\w-]*)[ \t]*([^\n]*)\n(.*?)^```$(?:\n+```text\n(.*?)^```$)?")
GENERATED = re.compile(r"(?ms)^(<!-- (help|methods):? ?([\w ]*) -->\n)(.*?)(?=^<!-- /\2 -->$)")
LINK = re.compile(r"\]\(([^)\s]+)[^)]*\)")
CODE = re.compile(r"(`+)(.+?)\1")
PATH = re.compile(r"(?:src|tests|docs|benchmarks|scripts|examples|requirements)/[\w./-]*(?:::\w+)?")


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
    stale = [m for m in GENERATED.finditer(text) if m[4] != generate(m[2], m[3])]
    found = [(text[: m.start()].count("\n") + 1, "not current: run this with --write") for m in stale]
    for number, line in prose:
        if line.startswith("```"):
            found.append((number, "this block is never closed"))
        found += [(number, said) for said in wrong_links(page, CODE.sub("", line))]
        found += [(number, said) for _, code in CODE.findall(line) for said in wrong_names(code.strip())]
    lines = [(number, line[4:]) for number, line in prose if line.startswith("    ")]
    for block in (b for b in blocks if b.language in ("", "console", "bash", "sh")):
        lines += enumerate(re.sub(r"\\\n\s*", "", block.text).splitlines(), block.line + 1)
    found += [(number, said) for number, line in lines if (said := wrong_command(line, True))]
    found += [(b.line, said) for b in blocks if b.language == "yaml" and (said := wrong_yaml(b.text))]
    return [f"{page}:{number}: {said}" for number, said in found] + run_python(page, blocks)


def generate(kind: str, name: str) -> str:
    """The text of a generated part: the --help of a command, or the table of methods."""
    if kind == "methods":
        head = "| method | what it is | paper | needs | trains | file |\n|---|---|---|---|---|---|\n"
        return head + "".join(method_row(entry) for entry in METHODS.values())
    shown = CliRunner().invoke(cli, [*name.split()[1:], "--help"], prog_name="whet", terminal_width=100)
    return f"```text\n{shown.output.rstrip()}\n```\n"


def method_row(entry: MethodEntry) -> str:
    """One row of the table of methods."""
    page = os.path.relpath(method_page(entry.name), ROOT / "docs" / "methods")
    paper = "none" if entry.arxiv == "-" else f"[{entry.paper}](https://arxiv.org/abs/{entry.arxiv})"
    needs = ", ".join(need.replace("_", " ") for need in entry.needs) or "nothing"
    file = f"[{entry.name}.py](../../src/whet/methods/{entry.name}.py)"
    return f"| [`{entry.name}`]({page}) | {entry.title} | {paper} | {needs} | {entry.trains} | {file} |\n"


def method_page(name: str) -> Path:
    """Where a method is described: a page of docs, or one of docs/methods."""
    general = ROOT / "docs" / f"{name.replace('_', '-')}.md"
    return general if general.is_file() else ROOT / "docs" / "methods" / f"{name}.md"


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
    return {re.sub(r"[^\w\- ]", "", line.lstrip("#").strip().lower()).replace(" ", "-") for line in lines}


def wrong_names(code: str) -> Iterator[str]:
    """What is wrong with a piece of `code` in running text: a command, a make target, a path, a test."""
    file, _, test = code.partition("::")
    if said := wrong_command(code, False):
        yield said
    elif make := re.fullmatch(r"make ([a-z-]+)", code):
        if not re.search(rf"^{make[1]}:", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE):
            yield f"the Makefile has no target {make[1]}"
    elif PATH.fullmatch(code) and not re.search("NAME|TASK", code):
        if not (ROOT / file).exists():
            yield f"there is no {file}"
        elif test and f"def {test}(" not in (ROOT / file).read_text("utf-8"):
            yield f"there is no {test} in {file}"


def wrong_yaml(text: str) -> str | None:
    """Why a block cannot be read as YAML."""
    try:
        yaml.safe_load(text)
    except yaml.YAMLError as error:
        return f"this is no YAML: {' '.join(str(error).split())}"
    return None


def wrong_command(line: str, strict: bool) -> str | None:
    """What is wrong with a `whet ...` command line; a missing argument matters only when `strict`."""
    line = line.removeprefix("$ ")
    if not line.startswith("whet ") or "..." in line or "[" in line:
        return None
    words = shlex.split(line, comments=True)
    end = next((i for i, word in enumerate(words) if re.match(r"[|&;<>]|2>", word)), len(words))
    rest, said = words[1:end], " ".join(words[:end])
    command: click.Command | None = cli
    above, name = click.Context(cli, **cli.context_settings), "whet"
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        name, *rest = rest
        command = command.get_command(above, name)
    if command is None:
        return f"{said}: No such command."
    if isinstance(command, click.Group) or {"--help", "-h"} & set(rest):
        return None
    try:
        check_methods(command.make_context(name, [*rest], parent=above).params)
    except click.UsageError as error:
        skip = isinstance(error, click.MissingParameter) and not strict
        return None if skip or stands_for_something(error, rest) else f"{said}: {error.format_message()}"
    except UsageError as error:
        return f"{said}: {error}"
    return None


def stands_for_something(error: click.UsageError, rest: list[str]) -> bool:
    """Whether an argument was refused for being a placeholder (VERSION) or a file that the reader has to have."""
    if not isinstance(error, click.BadParameter) or not isinstance(error.param, click.Argument):
        return False
    return isinstance(error.param.type, click.Path) or any(re.fullmatch("[A-Z_]+", word) for word in rest)


def check_methods(given: dict[str, Any]) -> None:
    """Methods and settings that a command names. Raises UsageError for one that does not exist."""
    settings = given.get("settings") or {}
    get_method(given.get("control") or "random_search")
    for name in (given.get("method") or given.get("methods") or "NAME").split(","):
        if not name.isupper():
            own = {k.removeprefix(f"{name}."): v for k, v in settings.items()}
            configure(get_method(name), {k: v for k, v in own.items() if "." not in k})


def run_python(page: Path, blocks: list[Block]) -> list[str]:
    """Run the python blocks of a page in a process of their own; what went wrong."""
    if ("python", "") not in [block[:2] for block in blocks]:
        return []
    env = {k: v for k, v in os.environ.items() if not k.startswith("OPENAI_")}
    command = [sys.executable, str(Path(__file__).resolve()), "--run", str(page.resolve())]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=120)
    if done.returncode not in (0, 1) or (done.returncode == 1 and not done.stdout):
        return [f"{page}:1: the python blocks ended the process: {done.stderr.strip()}"]
    return [f"{page}:{said}" for said in done.stdout.splitlines()]


def run_blocks(page: Path) -> int:
    """Run the python blocks of a page in this process; prints `line: what` for the first that fails."""
    sys.addaudithook(stay_offline)
    module = sys.modules["page"] = types.ModuleType("page")
    for block in parse(page.read_text("utf-8"))[0]:
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
    found = [f"{table}: the method {name} has no file of its own" for name in METHODS.keys() - files]
    found += [f"{table}: {name}.py is no row of the table" for name in files - METHODS.keys()]
    found += [f"{table}: the method {n} has no page" for n in METHODS if not method_page(n).is_file()]
    commands = cli.list_commands(click.Context(cli))
    shown = {match[3] for match in GENERATED.finditer((docs / "cli.md").read_text("utf-8"))}
    found += [f"docs/cli.md:1: whet {n} is missing" for n in commands if f"whet {n}" not in shown]
    linked = {(docs / t.partition("#")[0]) for t in LINK.findall((docs / "index.md").read_text("utf-8"))}
    pages = {*docs.rglob("*.md")} - {docs / "index.md", *(docs / "methods" / f"{n}.md" for n in METHODS)}
    found += [f"docs/index.md:1: {page.relative_to(docs)} is not linked" for page in pages - linked]
    return sorted(found)


def main() -> int:
    """Read the command line; 1 when something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("pages", nargs="*", type=Path)
    parser.add_argument("--write", action="store_true", help="update the generated parts first")
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    if (given := parser.parse_args()).run is not None:
        return run_blocks(given.run)
    os.chdir(ROOT)
    folders = (".", "docs", "docs/methods", "examples/*")
    pages = given.pages or sorted(page for folder in folders for page in Path().glob(f"{folder}/*.md"))
    for page in pages if given.write else ():
        text = page.read_text("utf-8")
        page.write_text(GENERATED.sub(lambda m: m[1] + generate(m[2], m[3]), text), "utf-8")
    found = [said for page in pages for said in check_page(page)] + ([] if given.pages else check_whole())
    print("\n".join(found) or f"{len(pages)} pages are true.")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
