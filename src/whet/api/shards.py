"""Parts of a comparison that run apart, on machines that do not know each other, and the one table that is made of them."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, Unpack, cast

import msgspec
import orjson

from whet._util.arguments import check_arguments, check_path, describe_keywords
from whet._util.storable import to_json
from whet.api.comparison import compare_rows
from whet.api.keywords import OutKeywords
from whet.api.results import MethodComparison
from whet.engine.comparison_json import ComparisonJSON, ShardJSON
from whet.engine.options import Options
from whet.engine.run_folder import read_header, write_derived
from whet.engine.state_place import is_shared
from whet.errors import UsageError, parameter, quantity
from whet.reporting.comparison_page import write_comparison
from whet.stats import STRICT
from whet.task import Task
from whet.task.spec import with_gate
from whet.types import content_hash
from whet_client.storable import show_value

T = TypeVar("T")
FILES = "comparison-*-of-*.json"
_FAMILY = "family"
_LONGEST = 400
_ALIKE = ("methods", "seeds", "seed", "of", "fingerprint", "limits", "alpha", "alpha_policy")
"""The settings that all shards of a comparison share."""


@dataclass(frozen=True)
class Shard:
    """Every `of`-th run of a comparison, from number `number` on; both count from 1. `family` names the comparison for the ledger
    of openings, `about` says which comparison it is."""

    number: int
    of: int
    family: str = ""
    about: ShardJSON | None = None

    @classmethod
    def parse(cls, text: str) -> Shard:
        """`3/20` as a shard. Raises UsageError."""
        first, _, last = text.partition("/")
        if not (first.isdecimal() and last.isdecimal() and 1 <= int(first) <= int(last)):
            raise UsageError(
                f"{parameter('shard', text)} is not a shard. Write 1/20 for the first of twenty parts, and so on to 20/20."
            )
        return cls(int(first), int(last))

    def of_family(self, folder: Path, *, make: bool) -> Shard:
        """The shard with the name of the family that writes into this folder: its shards share one opening of the test rows. The
        name is made with `make`; else it is empty where it is not there yet. Where machines share a ledger, it is that of the
        comparison, which every machine finds without the others."""
        path = folder / _FAMILY
        if make and not path.exists():
            common = {name: value for name, value in (self.about or {}).items() if name in _ALIKE}
            name = content_hash(common)[:16] if is_shared() else secrets.token_hex(8)
            folder.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError), path.open("x", encoding="utf-8") as file:
                file.write(name)
        return replace(self, family=path.read_text("utf-8").strip() if path.exists() else "")

    def of_comparison(
        self, folder: Path, task: Task, names: Sequence[str], seeds: int, options: Options
    ) -> Shard:
        """The shard of this comparison. Raises UsageError where it has no run, and where a shard of another comparison stands in
        the folder: its runs are paid, and nothing of it is written over."""
        runs = seeds * len(names)
        if self.of > runs:
            raise UsageError(
                f"{parameter('shard', f'{self.number}/{self.of}')}: the comparison has {quantity(runs, 'run')}. Make at most "
                "as many shards."
            )
        about: ShardJSON = {
            "number": self.number,
            "of": self.of,
            "methods": list(names),
            "seeds": seeds,
            "seed": options.seed,
            "fingerprint": task.fingerprint,
            "limits": asdict(options.limits(task)),
            "alpha": with_gate(task, options.alpha, None).alpha,
        }
        if (policy := with_gate(task, None, None, options.alpha_policy).alpha_policy) != STRICT:
            about["alpha_policy"] = policy
        own = replace(self, about=about)
        for path in sorted(folder.glob(FILES)):
            _check_same(own.file(folder), about, path, _read_shard(path)["shard"])
        return own

    def pick(self, items: Sequence[T]) -> list[T]:
        """The items of this shard."""
        return list(items[self.number - 1 :: self.of])

    def file(self, folder: Path) -> Path:
        """The file of this shard's comparison."""
        return folder / f"comparison-{self.number}-of-{self.of}.json"


def write_shard(folder: Path, shard: Shard, compared: ComparisonJSON) -> None:
    """Write the comparison of a shard beside its runs. Raises StorageError."""
    write_derived(shard.file(folder), to_json(dict(compared), orjson.OPT_INDENT_2))


@check_arguments
@describe_keywords(OutKeywords)
def merge(folders: Sequence[str | Path], **keywords: Unpack[OutKeywords]) -> MethodComparison:
    """Join the shards in these folders into one comparison, as `whet.compare` returns it for all runs in one process.

    The folder `out`, by default the first of `folders`, gets comparison.html, .csv, .md, .tex and .json. Runs that no shard
    has made are named under `missing`. Raises UsageError for a folder without shards, shards of different comparisons, and a
    run that two shards made.
    """
    if not folders:
        raise UsageError("Name at least one folder with shards of a comparison.")
    read = [shard for folder in folders for shard in _read_shards(Path(folder))]
    common = _common(read)
    rows: dict[tuple[str, int], tuple[Path, dict[str, Any]]] = {}
    for path, shard in read:
        for row in shard["runs"]:
            key = row["method"], row["seed"]
            if key in rows and rows[key][1]["usage"] != row["usage"]:
                raise UsageError(
                    f"{path} and {rows[key][0]} hold two different runs of {row['method']} with seed "
                    f"{row['seed']}. Name only one of them."
                )
            place = path.parent / Path(row["run"]).name
            if not (place / "journal.sqlite").is_file():
                raise UsageError(
                    f"{path} needs the run {place.name} in the same folder, but the run is missing. "
                    "Copy its folder too."
                )
            rows.setdefault(key, (path, {**row, "run": str(place)}))
    names = list(common["methods"])
    wanted = [(name, common["seed"] + seed) for seed in range(common["seeds"]) for name in names]
    made = [rows[key][1] for key in wanted if key in rows]
    written = next((s["transfer"] for _, s in read if s.get("transfer")), None)
    compared = compare_rows(
        read[0][1]["task"],
        names,
        cast("Any", made),
        common["alpha"],
        {} if written is None else {"transfer": written},
    )
    compared["missing"] = [f"{name}, seed {seed}" for name, seed in wanted if (name, seed) not in rows]
    out = keywords.get("out")
    folder = Path(folders[0] if out is None else out)
    if read_header(folder) is not None:
        raise UsageError(
            f"{folder} is the folder of a run. Choose another folder with {parameter('out', 'DIR')}."
        )
    write_comparison(folder, compared)
    return MethodComparison({**compared, "folder": str(folder)})


def _read_shards(folder: Path) -> list[tuple[Path, dict[str, Any]]]:
    """The shards in a folder with their files. Raises UsageError."""
    check_path("the folder", folder)
    paths = sorted(folder.glob(FILES))
    if not paths:
        raise UsageError(
            f"{folder} holds no shard of a comparison ({FILES}). `whet compare TASK --methods A,B --shard 1/2 --out {folder}` "
            "makes one."
        )
    return [(path, _read_shard(path)) for path in paths]


def _read_shard(path: Path) -> dict[str, Any]:
    try:
        shard = orjson.loads(path.read_bytes())
        msgspec.convert(shard["shard"], ShardJSON)
        return dict(shard)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} cannot be read as a shard of a comparison: {error}") from None


def _check_same(path: Path, about: Mapping[str, Any], other: Path, known: Mapping[str, Any]) -> None:
    """Raise UsageError for two shards of different comparisons."""
    name = next((name for name in _ALIKE if about.get(name) != known.get(name)), None)
    if name is None:
        return
    if name == "fingerprint":
        what = "the task was edited between them (its prompt, rows, reward or models)"
    else:
        what = "; ".join(_describe_difference(name, about.get(name), known.get(name)))
    raise UsageError(
        f"{path} and {other} belong to different comparisons: {what}. Give each comparison its own "
        f"folder ({parameter('run', 'DIR')})."
    )


def _describe_difference(name: str, one: object, other: object) -> list[str]:
    """The difference between two values of an entry; for two mappings, each key that differs."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        keys = [key for key in dict.fromkeys((*one, *other)) if one.get(key) != other.get(key)]
        return [
            line
            for key in keys
            for line in _describe_difference(f"{name}.{key}", one.get(key), other.get(key))
        ]
    first, second = ("none" if value is None else show_value(value, _LONGEST) for value in (one, other))
    return [f"{name} is {first} in the first and {second} in the second"]


def _common(read: Sequence[tuple[Path, dict[str, Any]]]) -> dict[str, Any]:
    """The settings that the shards share. Raises UsageError naming those in which they differ."""
    first, known = read[0]
    for path, shard in read[1:]:
        _check_same(path, shard["shard"], first, known["shard"])
    shared: dict[str, Any] = known["shard"]
    return shared
