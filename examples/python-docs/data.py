"""Rows made from the docstrings of the Python that runs this: first paragraphs, labelled by what the module
is about.

Nothing is downloaded. A row is the first paragraph of the docstring of a public class, function or
method; its target is the family of the module it was found in. The module's and the object's names are
not part of the input. Deterministic for one Python version; other versions have slightly other
docstrings.
"""

import hashlib
import importlib
import inspect
import re
import warnings

FAMILIES = {
    "network": "socket ssl select selectors ipaddress ftplib imaplib nntplib poplib smtplib telnetlib "
    "socketserver webbrowser http.client http.cookiejar http.cookies http.server urllib.error "
    "urllib.parse urllib.request urllib.robotparser wsgiref.handlers wsgiref.headers "
    "wsgiref.simple_server wsgiref.util xmlrpc.client xmlrpc.server",
    "files": "bz2 dbm.dumb filecmp fileinput fnmatch genericpath glob gzip io lzma os.path pathlib "
    "shelve shutil stat tarfile tempfile zipfile",
    "math": "cmath decimal fractions math numbers random statistics",
    "text": "codecs csv difflib gettext html html.parser json locale pprint re reprlib shlex string "
    "textwrap unicodedata",
    "testing": "doctest unittest unittest.async_case unittest.case unittest.loader unittest.main "
    "unittest.mock unittest.result unittest.runner unittest.suite",
    "processes": "asyncio.base_subprocess asyncio.locks asyncio.queues asyncio.runners asyncio.subprocess "
    "asyncio.tasks concurrent.futures concurrent.futures.process concurrent.futures.thread "
    "multiprocessing.connection multiprocessing.context multiprocessing.managers "
    "multiprocessing.pool multiprocessing.process multiprocessing.queues "
    "multiprocessing.shared_memory multiprocessing.synchronize queue signal subprocess "
    "threading",
    "time": "calendar datetime sched time timeit zoneinfo",
}
BUILTINS = {"text": (str,), "math": (int, float, complex)}
MOST = 200  # rows of one family
SHORTEST, LONGEST = 25, 400  # characters
BOILERPLATE = re.compile(
    r"alias for field|capsule objects|an enumeration|return self|implement |helper for pickle"
    r"|built-in function|see help\(type|deprecated|reserved for|matches the"
    r"|inherited from|for more information",
    re.IGNORECASE,
)


def paragraph(thing: object) -> str:
    """First paragraph of the object's own docstring on one line, without a call signature in front."""
    text = getattr(thing, "__doc__", None)
    if not isinstance(text, str):
        return ""
    for block in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        line = " ".join(block.split())
        line = re.sub(
            r"^[\w.]+\([^()]*(\([^()]*\)[^()]*)*\)\s*(->\s*[\w\[\], .()]+?)?\s*(--?|:|\.)?\s*(?=[A-Z]|$)",
            "",
            line,
        )
        if line:
            return line
    return ""


def members(module: object, name: str) -> list[tuple[str, object]]:
    """Public classes and functions that belong to the module, and the public methods of its classes."""
    found = []
    for key, thing in sorted(vars(module).items()):
        home = getattr(thing, "__module__", None)
        own = isinstance(home, str) and home.lstrip("_").split(".")[0] in (
            name.split(".")[0],
            "posixpath",
            "sre_compile",
        )
        if key.startswith("_") or not callable(thing) or not (own or home is None):
            continue
        found.append((f"{name}.{key}", thing))
        if isinstance(thing, type):
            found += [
                (f"{name}.{key}.{m}", v) for m, v in sorted(vars(thing).items()) if not m.startswith("_")
            ]
    return found


def family_members(family: str) -> list[tuple[str, object]]:
    """Every (name, object) of a family; modules that this Python lacks are skipped."""
    found = []
    for name in FAMILIES[family].split():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # some modules announce their end
                found += members(importlib.import_module(name), name)
        except ImportError:
            continue
    for kind in BUILTINS.get(family, ()):
        found += [(f"{kind.__name__}.{m}", v) for m, v in sorted(vars(kind).items()) if not m.startswith("_")]
    return found


def usable(text: str) -> bool:
    """True for a line of prose: long enough, short enough, of five words or more, and no boilerplate."""
    words = re.findall(r"[A-Za-z]{2,}", text)
    return (
        SHORTEST <= len(text) <= LONGEST
        and len(words) >= 5
        and not BOILERPLATE.search(text)
        and ">>>" not in text
    )


def rows() -> list[dict]:
    """The data set: one row for each distinct paragraph that belongs to one family only, sorted by id."""
    homes: dict[str, set[str]] = {}
    first: dict[str, tuple[str, str]] = {}
    for family in FAMILIES:
        for name, thing in family_members(family):
            text = paragraph(thing)
            if usable(text) and name not in text:
                homes.setdefault(text.lower(), set()).add(family)
                first.setdefault(text.lower(), (name, text))
    picked: dict[str, list[dict]] = {family: [] for family in FAMILIES}
    for key in sorted(homes, key=lambda k: hashlib.sha256(k.encode()).hexdigest()):
        families = homes[key]
        family = next(iter(families))
        if len(families) == 1 and len(picked[family]) < MOST:
            name, text = first[key]
            picked[family].append({"id": name, "input": text, "target": family})
    return sorted((row for part in picked.values() for row in part), key=lambda row: row["id"])
