"""Prepare the folder of text from which the masked-language-model delta is trained.

``python -m tools.embedded.corpus OUT [--debs FOLDER]`` writes one ``NAME.txt`` per source (one
paragraph a line) and ``SOURCES.txt`` with every source, its licence and its size. Sources are Debian
packages with permissive or public-domain text, fetched with ``apt-get download`` (or read from
``--debs``), and the docstrings of the running Python's standard library. Paragraphs that contain the
first paragraph of any standard-library docstring are left out, because the example task
``examples/python-docs`` is made of those.
"""

from __future__ import annotations

import argparse
import ast
import gzip
import hashlib
import html.parser
import re
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

PARAGRAPH_TAGS = {"p", "dd", "li", "dt", "td"}
TITLE_TAGS = {"h1", "h2", "h3", "h4"}
SILENT_TAGS = {"script", "style", "nav", "pre", "head", "footer"}
SHORTEST = 25  # characters of a paragraph worth keeping


@dataclass(frozen=True)
class CorpusSource:
    """A Debian package whose text is used: name, licence of the text, and the files to read."""

    package: str
    licence: str
    pattern: str


SOURCES = (
    CorpusSource("wordnet-base", "WordNet 3.0 licence (permissive)", "usr/share/wordnet/data.*"),
    CorpusSource("python3.11-doc", "PSF-2.0", "usr/share/doc/python3.11/html/**/*.html"),
    CorpusSource(
        "postgresql-doc-15",
        "PostgreSQL licence (permissive)",
        "usr/share/doc/postgresql-doc-15/html/**/*.html",
    ),
    CorpusSource("sqlite3-doc", "public domain", "usr/share/doc/sqlite3/**/*.html"),
    CorpusSource("python-django-doc", "BSD-3-Clause", "usr/share/doc/python-django-doc/html/**/*.html"),
    CorpusSource("rust-doc", "MIT or Apache-2.0", "usr/share/doc/rust-doc/html/book/*.html"),
    CorpusSource("apache2-doc", "Apache-2.0", "usr/share/doc/apache2-doc/manual/en/**/*.html"),
    CorpusSource("nodejs-doc", "MIT", "usr/share/doc/nodejs/api/*.html"),
    CorpusSource("jargon-text", "public domain", "usr/share/doc/jargon-text/jargon.txt.gz"),
)


class Paragraphs(html.parser.HTMLParser):
    """Collects (title, paragraph) pairs from a page."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.passages: list[tuple[str, str]] = []
        self.title = ""
        self.silent = 0
        self.text: list[str] = []
        self.heading: list[str] | None = None

    def flush(self) -> None:
        """Close the paragraph being read."""
        text = tidy("".join(self.text))
        self.text = []
        if len(text) >= SHORTEST:
            self.passages.append((self.title, text))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open a heading, a paragraph or a silent part."""
        if tag in SILENT_TAGS:
            self.silent += 1
        elif tag in TITLE_TAGS:
            self.flush()
            self.heading = []
        elif tag in PARAGRAPH_TAGS:
            self.flush()

    def handle_endtag(self, tag: str) -> None:
        """Close what :meth:`handle_starttag` opened."""
        if tag in SILENT_TAGS:
            self.silent = max(0, self.silent - 1)
        elif tag in TITLE_TAGS and self.heading is not None:
            self.title, self.heading = re.sub(r"^[\d.]+\s*|¶", "", tidy("".join(self.heading))), None
        elif tag in PARAGRAPH_TAGS:
            self.flush()

    def handle_data(self, data: str) -> None:
        """Add text to the open heading or paragraph."""
        if not self.silent:
            (self.text if self.heading is None else self.heading).append(data)


def tidy(text: str) -> str:
    """Collapse white space and drop paragraph signs."""
    return re.sub(r"\s+", " ", text.replace("¶", "")).strip()


def with_title(title: str, text: str) -> str:
    """The paragraph alone, after its title, or before it: chosen by the text's hash, 40%, 25%, 35%.

    A title after the text teaches the model to name what it has just read.
    """
    if not 2 < len(title) < 60:
        return text
    draw = hashlib.sha256(text.encode()).digest()[0] / 256
    if draw < 0.4:
        return text
    return f"{title}. {text}" if draw < 0.65 else f"{text} {title}."


def from_html(path: Path) -> Iterator[str]:
    """Paragraphs of an HTML page."""
    parser = Paragraphs()
    parser.feed(path.read_text(encoding="utf-8", errors="ignore"))
    parser.flush()
    for title, text in parser.passages:
        yield with_title(title, text)


def from_wordnet(path: Path) -> Iterator[str]:
    """Definitions and examples of a WordNet data file, as natural sentences."""
    for line in path.read_text(encoding="latin-1").splitlines():
        if line.startswith("  ") or " | " not in line:
            continue
        head, gloss = line.split(" | ", 1)
        fields = head.split()
        words = [
            re.sub(r"\(.*\)", "", w).replace("_", " ") for w in fields[4 : 4 + 2 * int(fields[3], 16) : 2]
        ]
        definition, _, examples = gloss.strip().partition('; "')
        draw = hashlib.sha256(line.encode()).digest()[0] / 256
        named = " or ".join(words[:3])
        yield f"{named}: {definition}" if draw < 0.45 else f"{definition}: {named}"
        for example in examples.split('"'):
            if len(tidy(example)) >= 15:
                yield tidy(example)


def from_text(path: Path) -> Iterator[str]:
    """Paragraphs of a gzip-compressed plain text file."""
    text = gzip.decompress(path.read_bytes()).decode("latin-1")
    for block in re.split(r"\n\s*\n", text):
        if len(tidy(block)) >= SHORTEST:
            yield tidy(block)


def docstrings() -> Iterator[tuple[str, list[str]]]:
    """Module name and paragraphs of every docstring in the standard library's source files."""
    root = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(root.rglob("*.py")):
        if {"site-packages", "dist-packages", "lib2to3"} & set(path.parts):
            continue
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError, ValueError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                paragraphs = [tidy(p) for p in re.split(r"\n\s*\n", ast.get_docstring(node) or "") if tidy(p)]
                if paragraphs:
                    yield path.stem, paragraphs


def builtin_docstrings() -> Iterator[str]:
    """First paragraphs of docstrings that exist only at run time (modules written in C)."""
    for name in sorted(sys.stdlib_module_names):
        if name in {"antigravity", "this", "idlelib"} or name.startswith("_") or "test" in name:
            continue
        try:
            module = __import__(name)
        except Exception:  # modules of other platforms
            continue
        things = [module, *vars(module).values()]
        things += [
            member for thing in things[1:] if isinstance(thing, type) for member in vars(thing).values()
        ]
        for thing in things:
            text = getattr(thing, "__doc__", None)
            if isinstance(text, str) and text.strip():
                yield tidy(re.split(r"\n\s*\n", text.strip())[0])


def words_of(text: str) -> list[str]:
    """Lower-case runs of letters and digits."""
    return re.findall(r"[a-z0-9]+", text.lower())


class Held:
    """Finds paragraphs that contain a held-out paragraph word for word."""

    def __init__(self, paragraphs: Iterable[str]) -> None:
        self.exact: set[tuple[str, ...]] = set()
        self.starts: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
        for paragraph in paragraphs:
            words = tuple(words_of(paragraph))
            self.exact.add(words)
            if len(words) >= 5:
                self.starts.setdefault(words[:5], set()).add(words)

    def __call__(self, text: str) -> bool:
        """True when ``text`` equals a held-out paragraph or contains one of five words or more."""
        words = tuple(words_of(text))
        if words in self.exact:
            return True
        for at in range(len(words) - 4):
            for row in self.starts.get(words[at : at + 5], ()):
                if words[at : at + len(row)] == row:
                    return True
        return False


def unpack(source: CorpusSource, debs: Path, work: Path) -> Path:
    """Folder with the package's files; the package is downloaded when ``debs`` does not have it."""
    if not list(debs.glob(f"{source.package}_*.deb")):
        subprocess.run(["apt-get", "download", source.package], cwd=debs, check=True)
    target = work / source.package
    subprocess.run(
        ["dpkg-deb", "-x", str(sorted(debs.glob(f"{source.package}_*.deb"))[-1]), str(target)], check=True
    )
    return target


def lines_of(path: Path) -> Iterator[str]:
    """Paragraphs of a file, by its kind."""
    if path.name.startswith("data."):
        return from_wordnet(path)
    return from_text(path) if path.suffix == ".gz" else from_html(path)


def write(folder: Path, name: str, lines: Iterable[str], held: Held) -> tuple[int, int]:
    """Write a source's distinct English paragraphs; returns the words kept and the paragraphs held out."""
    distinct = dict.fromkeys(line for line in lines if sum(c < "\x7f" for c in line) > 0.97 * len(line))
    kept = [line for line in distinct if not held(line)]
    (folder / f"{name}.txt").write_text("\n".join(kept) + "\n", encoding="utf-8")
    return sum(len(line.split()) for line in kept), len(distinct) - len(kept)


def main(argv: list[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--debs", type=Path, help="folder of already downloaded .deb files")
    options = parser.parse_args(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    library = list(docstrings())
    held = Held([*(paragraphs[0] for _, paragraphs in library), *builtin_docstrings()])
    report = []
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        debs = options.debs or work
        for source in SOURCES:
            files = sorted(unpack(source, debs, work).glob(source.pattern))
            count, out = write(
                options.out, source.package, (line for path in files for line in lines_of(path)), held
            )
            report.append(f"{source.package}\t{source.licence}\t{count} words\t{out} paragraphs held out")
    rest = (
        text
        for _, paragraphs in library
        for text in paragraphs[1:]
        if len(text) >= SHORTEST and ">>>" not in text
    )
    count, out = write(options.out, "python-docstrings", rest, held)
    report.append(f"python-docstrings\tPSF-2.0\t{count} words\t{out} paragraphs held out")
    (options.out / "SOURCES.txt").write_text("\n".join(report) + "\n", encoding="utf-8")
    sys.stderr.write("\n".join(report) + "\n")


if __name__ == "__main__":
    main()
