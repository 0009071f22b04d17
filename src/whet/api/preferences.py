"""`whet.learn_preferences`: people's judgements become a reward model, and a search with the model becomes a proposal for a
prompt.

The steps, in order: read the judgements; fit a reward model and measure it on inputs that it has not seen; go on only where it
orders answers better than chance; write a task folder whose reward is that model and whose sealed rows are inputs that it did not
learn from; search; ask before the prompt is written. Nothing is paid before the search.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Unpack

from whet._util.arguments import check_arguments, check_path, describe_keywords
from whet._util.blocking import blocking
from whet.api.keywords import (
    JUDGEMENT_GROUPS,
    PREFERENCES_GROUPS,
    JudgementKeywords,
    PreferencesKeywords,
    QuestionKeywords,
    SeedKeywords,
)
from whet.api.results import PreferencesResult
from whet.api.running import optimize_task
from whet.engine.options import Options, options_of_method
from whet.engine.progress import Progress
from whet.engine.run_folder import write_derived
from whet.errors import ALARM, UsageError, did_you_mean, parameter, quantity
from whet.feedback.preferences import ReadPreferences, describe_thumbs, read_open_pairs, read_preferences
from whet.feedback.prompt_file import prompt_path, replace_file
from whet.methods import MethodChoice, choose_method
from whet.prompt.diff import text_diff
from whet.reporting import display_progress
from whet.rewards.preference import (
    EMBEDDED,
    FEATURES,
    FittedPreferences,
    HeldOut,
    JudgedAnswers,
    Seen,
    conservative_mean,
    fit_judgements,
    information_gain,
    strengths_of,
)
from whet.task import load_prompt, load_task
from whet.types import content_hash
from whet_client.storable import show_value

CHEAP, TRAINED = "opro", "prewrite"
"""The method without another choice: one that needs rewards alone, and the one that trains a rewriter."""
DIRECT = "dpo"
"""The method that reads the judgements themselves: its rows have them."""
KL_LIMIT = "kl_limit"
MODEL, PROPOSAL, FIGURES = "preference.safetensors", "proposal.md", "preferences.json"
NO_MODEL = "A dry run without a task model: the reward model was measured, and no search was planned."
_TRAIN = 0.6
"""Share of the inputs that are not sealed of which prompts are searched on; the rest validates them."""
_DEFAULTS: Mapping[str, object] = {"good": (), "bad": (), "features": "surface"}
Sources = str | Path | Sequence[str | Path | Mapping[str, Any]]


class UnclearPreferences(UsageError):
    """A reward model that cannot be told from chance on inputs that it has not seen. `result` holds its figures."""

    def __init__(self, message: str, result: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.result = dict(result)


@check_arguments
@describe_keywords(*PREFERENCES_GROUPS, defaults=Options, **_DEFAULTS)
async def alearn_preferences(
    prompt: str | Path,
    feedback: Sources,
    *,
    brake: float = 1.0,
    alarm: bool = True,
    anyway: bool = False,
    **keywords: Unpack[PreferencesKeywords],
) -> PreferencesResult:
    """Fit a reward model to people's judgements, search with the model as the reward, and propose the resulting prompt.

    `prompt` is the file of a prompt; `feedback` a file, files and rows: pairs, choices, ratings, thumbs, corrections
    (docs/preferences.md). `brake`: the number of standard deviations of the members' disagreement that the reward subtracts.
    `alarm`: whether the search stops at answers unlike those that people judged. `anyway` continues even if the model is no
    better than chance. The method is by default opro, or prewrite with a `policy`. The result replaces the file of the
    prompt, or goes to `out`. `run` is the folder of all files; the same call again resumes.

    Raises UnclearPreferences (a UsageError) if the held-out accuracy is no better than chance, and UsageError for unusable
    input, both before anything is paid or written. Raises ProviderError for a dead endpoint.
    """
    method, features = keywords.get("method"), _features(keywords)
    path, target = _files_of(prompt, keywords.get("out"))
    read = read_judgements(feedback, keywords)
    with ExitStack() as stack:
        shown = stack.enter_context(display_progress(keywords.get("progress")))
        rows = rows_of_prompt(path, read.judged)
        fitted = _fit(read, features)
        figures = {"prompt": str(path), **describe_figures(read, fitted.held_out, features), "anyway": anyway}
        shown.say(" ".join(preference_sentences(figures)))
        if not fitted.held_out.beats_chance and not anyway:
            raise UnclearPreferences(_refusal(fitted.held_out), {**figures, "status": "refused"})
        if keywords.get("dry_run") and not any(keywords.get(name) for name in ("lm", "task_lms")):
            return PreferencesResult({**figures, "status": "planned", "reason": NO_MODEL, "warnings": []})
        start = path.read_bytes()
        folder = _folder(keywords, path, _content(start, read.judged, features, brake, alarm))
        dry = bool(keywords.get("dry_run"))
        place = Path(stack.enter_context(tempfile.TemporaryDirectory())) if dry else folder
        words = {**keywords, **_kl_alarm(fitted.held_out if alarm else None, method, keywords)}
        judgements = _judgements_by_input(read.judged) if _name_of(method, keywords) == DIRECT else {}
        rows = {query: {**row, **judgements.get(query, {})} for query, row in rows.items()}
        run = await _search(place, start, rows, fitted, (brake, alarm), method, words, shown)
        result = {**figures, "folder": str(folder), "run": dict(run), "warnings": _warnings(figures, run)}
        if run["status"] == "planned":
            return PreferencesResult(
                {**result, "status": "planned", "reason": "A dry run: nothing was paid."}
            )
        improvement = run["improvement"]
        result |= {"reason": improvement["reason"], "usage": dict(run["usage"])}
        if not improvement["promoted"]:
            return _finish(folder, {**result, "status": "nothing"})
        if "system" in run["best"]:
            result |= _describe_weights(run, result["warnings"])
            if run["best"]["prompt"] == path.read_text("utf-8"):
                return _finish(folder, {**result, "status": "trained"})
        written = target or path
        result |= _write_proposal(folder, path, written, str(run["best"]["prompt"]))
    confirm = keywords.get("confirm")
    if confirm is not None and not confirm({**result, "status": "proposed"}):
        return _finish(folder, {**result, "status": "proposed"})
    if path.read_bytes() != start:
        raise UsageError(
            f"{path} changed after whet read it. The proposal is in {folder / PROPOSAL}. Copy it by "
            "hand, or run the command again."
        )
    replace_file(written, result["text"].encode("utf-8"))
    return _finish(folder, {**result, "status": "written"})


learn_preferences = blocking(alearn_preferences)


def _write_proposal(folder: Path, path: Path, written: Path, text: str) -> dict[str, Any]:
    """Write the new prompt beside the run, and describe it: where it will go, and what it changes."""
    write_derived(folder / PROPOSAL, text.encode("utf-8"))
    return {
        "written_to": str(written),
        "proposal": str(folder / PROPOSAL),
        "text": text,
        "diff": text_diff(path.read_text("utf-8"), text, path.name, f"{written.name} (preferred)"),
    }


def _files_of(prompt: str | Path, out: str | Path | None) -> tuple[Path, Path | None]:
    """The file of the prompt, and the new file for the result (None: the file of the prompt). Raises UsageError."""
    path, target = prompt_path(prompt), None if out is None else Path(out)
    if path is None:
        raise UsageError(
            f"{parameter('prompt')} must be the path of the file that receives the new prompt; this "
            f"is a text: {show_value(prompt, 60)}. Write the prompt to a file, such as prompt.md, and "
            "give its path."
        )
    check_path(parameter("out"), out)
    if target is None and path.suffix.lower() in (".yaml", ".yml"):
        raise UsageError(
            f"{path}: whet does not change a prompt in YAML in place. Name a file for the new prompt: "
            f"{parameter('out', 'prompt.md')}."
        )
    if target is not None and target.exists():
        raise UsageError(f"{target} exists already. Name a new file, or leave {parameter('out')} away.")
    return path, target


@check_arguments
@describe_keywords(*JUDGEMENT_GROUPS, SeedKeywords, defaults=Options, **_DEFAULTS)
def preference_questions(
    answers: Sources, most: int, *, feedback: Sources = (), **keywords: Unpack[QuestionKeywords]
) -> list[dict[str, Any]]:
    """The `most` pairs of answers that a person should compare next, the most informative first.

    `answers` are rows with an input and an answer, two or more for an input, or with two answers. The information is the
    disagreement of the members of a reward model fitted to `feedback` (BALD, `whet.rewards.preference.information_gain`). If
    there are too few judgements to fit a model, the pairs are drawn at random and `information_bits` is None. One pair for each
    input comes first.

    Each question is a row (id, input, output_1, output_2, preferred, information_bits) that is feedback once `preferred` holds 1,
    2 or tie. Raises UsageError if no input has two answers that nobody has compared.
    """
    if most < 1:
        raise UsageError(f"{parameter('most')} must be 1 or more; this is {most}.")
    judged = None
    if feedback != () and feedback != []:
        judged = read_judgements(feedback, keywords).judged
    pairs = read_open_pairs(_list_sources(answers), () if judged is None else judged.pairs)
    rng, features = random.Random(keywords.get("seed", 0)), _features(keywords)
    rng.shuffle(pairs)
    gains: list[float | None] = [None] * len(pairs)
    model = None if judged is None else _fitted_or_none(judged, features)
    if model is not None:
        embed = _embedding(features)
        first, second = (
            strengths_of(model.model, [p[0] for p in pairs], [p[side] for p in pairs], embed)
            for side in (1, 2)
        )
        gains = [round(float(bits), 4) for bits in information_gain(first, second)]
        order = sorted(range(len(pairs)), key=lambda i: -(gains[i] or 0.0))
        pairs, gains = [pairs[i] for i in order], [gains[i] for i in order]
    turns: dict[str, int] = {}
    turn = [turns.update({p[0]: turns.get(p[0], -1) + 1}) or turns[p[0]] for p in pairs]
    chosen = sorted(range(len(pairs)), key=lambda i: turn[i])[:most]
    return [
        {
            "id": f"ask-{content_hash(pairs[i])[:12]}",
            "input": pairs[i][0],
            "output_1": pairs[i][1],
            "output_2": pairs[i][2],
            "preferred": None,
            "information_bits": gains[i],
        }
        for i in chosen
    ]


def _fit(read: ReadPreferences, features: str) -> FittedPreferences:
    """The reward model. Where thumbs of one kind cannot teach one, the error says how the ratings were read."""
    up, down, middle = read.thumbs
    if read.scales and not read.judged.pairs and not (up and down):
        raise UsageError(
            f"The ratings say {describe_thumbs(up, down, middle, read.scales)}, and no two answers to "
            "the same input are compared, so nothing shows what people prefer. Give good and bad "
            "judgements. If the ratings have another scale, state its lowest and highest rating: "
            f"{parameter('scale', 'LOW,HIGH')}."
        )
    return fit_judgements(read.judged, features, embed=_embedding(features))


def _fitted_or_none(judged: JudgedAnswers, features: str) -> FittedPreferences | None:
    """The model; None where the judgements are too few for one."""
    try:
        return fit_judgements(judged, features, embed=_embedding(features))
    except UsageError:
        return None


def _features(keywords: JudgementKeywords) -> str:
    return keywords.get("features") or str(_DEFAULTS["features"])


def read_judgements(feedback: Sources, keywords: JudgementKeywords) -> ReadPreferences:
    """The judgements of files and rows. Raises UsageError for a person who gave none, and for an unusable scale."""
    sources, person = _list_sources(feedback), keywords.get("person")
    good, bad = _words(keywords.get("good", ())), _words(keywords.get("bad", ()))
    ends = _ends_of(keywords.get("scale"))
    if person is not None:
        known = read_preferences(sources, good, bad, scale=ends).judged.people
        if person not in known:
            raise UsageError(
                f"{parameter('person')}: the feedback has no person {show_value(person)}.{did_you_mean(person, known)}"
            )
    return read_preferences(sources, good=good, bad=bad, person=person, scale=ends)


def _ends_of(scale: Sequence[float] | None) -> tuple[float, float] | None:
    if scale is None:
        return None
    ends = [*scale]
    if len(ends) == 2 and all(math.isfinite(end) for end in ends) and ends[0] < ends[1]:
        return ends[0], ends[1]
    raise UsageError(
        f"{parameter('scale')} must be the lowest and the highest rating, such as 1 and 7; this is "
        f"{show_value(ends, 60)}."
    )


def _words(value: str | Sequence[str]) -> Sequence[str]:
    return [value] if isinstance(value, str) else value


def _list_sources(sources: Sources) -> Sequence[str | Path | Mapping[str, Any]]:
    return [sources] if isinstance(sources, str | Path) else sources


def _embedding(features: str) -> Any:
    """The embedding that the features need, else None. Raises UsageError for unknown features and a missing package."""
    if features not in FEATURES:
        raise UsageError(
            f"{parameter('features')}: unknown features {show_value(features)}. Choose one of "
            f"{', '.join(FEATURES)}."
        )
    if features != EMBEDDED:
        return None
    from whet.models.embedded import load

    return load("encoder").embed  # type: ignore[attr-defined]


# Figures and words


def describe_figures(read: ReadPreferences, held_out: HeldOut, features: str) -> dict[str, Any]:
    """The figures of the judgements that were read, and of the reward model on unseen inputs."""
    one = held_out
    up, down, middle = read.thumbs
    return {
        "rows": read.rows,
        "dropped": dict(read.dropped),
        "pairs": one.pairs,
        "thumbs": one.labels,
        "up": up,
        "down": down,
        "middle": middle,
        "scales": [list(scale) for scale in read.scales],
        "inputs": one.inputs,
        "people": len(read.judged.people),
        "features": features,
        "accuracy": {"value": one.accuracy, "low": one.low, "high": one.high, "chance": 0.5},
        "beats_chance": one.beats_chance,
        "supported_kl": one.supported_kl if math.isfinite(one.supported_kl) else None,
        "brier": one.brier,
        "base_brier": one.base_brier,
        "calibration_error": one.error,
        "by_person": [person._asdict() for person in one.people],
        "opposed": [person.person for person in one.opponents],
        "notes": list(read.notes),
    }


def preference_sentences(figures: Mapping[str, Any]) -> list[str]:
    """The figures in words."""
    accuracy = figures["accuracy"]
    dropped = ", ".join(f"{n} {reason}" for reason, n in figures["dropped"].items())
    lines = [
        f"{quantity(figures['rows'], 'row')}: {quantity(figures['pairs'], 'pair')} and "
        f"{quantity(figures['thumbs'], 'thumb')} about "
        f"answers to {quantity(figures['inputs'], 'input')}{f' (dropped: {dropped})' if dropped else ''}.",
        *_thumbs_in_words(figures),
        f"On unseen inputs, the reward model agrees with {_share(accuracy)} of people's judgements "
        f"(chance: 50%). Its Brier score is {figures['brier']:.3f}, against "
        f"{figures['base_brier']:.3f} for a constant forecast; its calibration error is "
        f"{figures['calibration_error']:.3f}.",
    ]
    for name in figures["opposed"]:
        lines.append(
            f"{name} prefers the opposite of what the model learned from all people. Learn only from "
            f"{name}, or only from the others."
        )
    return lines


def _thumbs_in_words(figures: Mapping[str, Any]) -> list[str]:
    """Say the numbers of thumbs up and down and the scales of the ratings; empty where there are neither thumbs nor ratings."""
    up, down, middle, scales = (figures[name] for name in ("up", "down", "middle", "scales"))
    if not (up or down or middle or scales):
        return []
    return [f"Thumbs: {describe_thumbs(up, down, middle, scales)}."]


def _share(accuracy: Mapping[str, float]) -> str:
    value, low, high = (f"{100 * accuracy[name]:.0f}%" for name in ("value", "low", "high"))
    return f"{value} [{low}, {high}]"


def _refusal(held_out: HeldOut) -> str:
    share = _share({"value": held_out.accuracy, "low": held_out.low, "high": held_out.high})
    return (
        f"On unseen inputs, the reward model agrees with {share} of {held_out.pairs + held_out.labels} "
        "judgements. That interval includes chance (50%), so a search with this model would follow "
        f"noise. Nothing was paid. Collect more judgements, try other features ({', '.join(FEATURES)}), "
        f"or continue with {parameter('anyway', True)}."
    )


def _warnings(figures: Mapping[str, Any], run: Mapping[str, Any]) -> list[str]:
    warnings = list(run["warnings"])
    if (ended_by := str(run.get("ended_by", ""))).startswith(ALARM):
        warnings.append(
            f"The search was stopped by {ended_by}. The reward model was never tested on such "
            "answers. Let people judge answers of this kind, and search again with these judgements "
            "added. --no-alarm (alarm=False) continues the search without them."
        )
    if not figures["beats_chance"]:
        warnings.append(
            f"On unseen inputs, the reward model was no better than chance ({_share(figures['accuracy'])}). "
            "The search continued because you requested it."
        )
    return warnings


# The task and its run


def rows_of_prompt(path: Path, judged: JudgedAnswers) -> dict[str, dict[str, Any]]:
    """For each input the row of a task that fills the prompt's slots with it. Raises UsageError for an input that does not."""
    slots = sorted(load_prompt(path).slots)
    rows = {}
    for query in judged.inputs:
        value: Any = query
        if slots and slots != ["input"]:
            value = {slots[0]: query} if len(slots) == 1 else None
            if value is None:
                value = _object_in(query)
                if not {*slots} <= {*value}:
                    raise UsageError(
                        f"{path} has the slots {', '.join(slots)}, and the input {show_value(query, 60)} of the "
                        "feedback does not fill "
                        "them. Give each input as an object with these names."
                    )
        rows[query] = {"input": value}
    return rows


def _object_in(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _content(start: bytes, judged: JudgedAnswers, *settings: object) -> str:
    """A hash of all that the task is made of."""
    judgements = [[getattr(one, name) for name in type(one).__dataclass_fields__] for one in judged.all]
    return content_hash([hashlib.sha256(start).hexdigest(), judgements, *settings])


def _folder(keywords: Mapping[str, Any], path: Path, content: str) -> Path:
    run = keywords.get("run")
    if run is not None:
        return Path(run)
    return Path(keywords.get("root") or "runs") / f"{path.stem}-preferences-{content[:8]}"


def _name_of(method: MethodChoice | None, keywords: Mapping[str, Any]) -> str:
    """The name of the method that searches."""
    if method is None:
        return TRAINED if keywords.get("policy") else CHEAP
    return choose_method(method)[0].entry.name


def _kl_alarm(
    held_out: HeldOut | None, method: MethodChoice | None, keywords: Mapping[str, Any]
) -> dict[str, Any]:
    """The settings with the limit on the divergence that the held-out agreement supports, for a method that has such a limit and
    whose caller sets none; `held_out` is None without an alarm. A config object is a caller's whole choice."""
    chosen, config = choose_method(_name_of(None, keywords) if method is None else method)
    settings = dict(keywords.get("settings") or {})
    fields = getattr(chosen.config, "__dataclass_fields__", {})
    if held_out is None or config is not None or KL_LIMIT not in fields or KL_LIMIT in settings:
        return {}
    supported = held_out.supported_kl
    if not 0 < supported < math.inf:
        return {}
    return {"settings": {**settings, KL_LIMIT: round(supported, 3)}}


def _judgements_by_input(judged: JudgedAnswers) -> dict[str, dict[str, Any]]:
    """For each input the columns with what people said about its answers."""
    columns: dict[str, dict[str, Any]] = {query: {"pairs": [], "thumbs": []} for query in judged.inputs}
    for pair in judged.pairs:
        columns[pair.query]["pairs"].append([pair.better, pair.worse])
    for thumb in judged.labels:
        columns[thumb.query]["thumbs"].append([thumb.answer, thumb.good])
    return columns


def _describe_weights(run: Mapping[str, Any], warnings: Sequence[str]) -> dict[str, Any]:
    """The folder of the trained weights that belong to a result, and a warning that the test did not measure its prompt
    alone."""
    folder = str(Path(run["run"]) / "checkpoint")
    warning = (
        f"The result is a trained model with its prompt. The weights are in {folder}, and only with them does the "
        f"prompt earn what was measured. Export them: whet policy export {run['run']} FOLDER"
    )
    return {"weights": folder, "warnings": [*warnings, warning]}


async def _search(
    place: Path,
    start: bytes,
    rows: Mapping[str, dict[str, Any]],
    fitted: FittedPreferences,
    bounds: tuple[float, bool],
    method: MethodChoice | None,
    keywords: dict[str, Any],
    progress: Progress,
) -> Mapping[str, Any]:
    """Write the task, and search with the model as its reward."""
    name = method or _name_of(method, keywords)
    folder = place / ("judged-task" if _name_of(method, keywords) == DIRECT else "task")
    task = write_task(folder, start, rows, fitted, *bounds)
    options = options_of_method(name, {**keywords, "run": None, "root": place})
    return await optimize_task(load_task(task), options, progress)


def write_task(
    folder: Path,
    start: bytes,
    rows: Mapping[str, dict[str, Any]],
    fitted: FittedPreferences,
    brake: float,
    alarm: bool,
) -> Path:
    """A task folder: the prompt, the inputs in three splits, and the model as the reward. The same bytes each time."""
    blob = fitted.model.save()
    held = {*fitted.held}
    seen = sorted(
        (query for query in rows if query not in held),
        key=lambda query: hashlib.sha256(query.encode("utf-8", "surrogatepass")).hexdigest(),
    )
    cut = max(1, min(len(seen) - 1, round(_TRAIN * len(seen))))
    splits = {"train": seen[:cut], "validation": seen[cut:], "test": sorted(held)}
    rows = {query: row if query not in held else {"input": row["input"]} for query, row in rows.items()}
    spread = float(conservative_mean(fitted.strengths, brake).std())
    reward: dict[str, Any] = {"model": MODEL, "brake": brake} | ({"spread": spread} if spread > 0 else {})
    if alarm:
        bounds = Seen.of(fitted.doubts, fitted.lengths)
        reward["alarm"] = {name: getattr(bounds, name) for name in Seen.__dataclass_fields__}
    document = {
        "name": "preferences",
        "prompt": "prompt.md",
        "data": {split: f"{split}.jsonl" for split in splits},
        "reward": {"preference": reward},
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_derived(folder / MODEL, blob)
    write_derived(folder / "prompt.md", start)
    for split, queries in splits.items():
        lines = "".join(json.dumps(rows[query], ensure_ascii=False) + "\n" for query in queries)
        write_derived(folder / f"{split}.jsonl", lines.encode("utf-8", "surrogatepass"))
    write_derived(folder / "task.yaml", (json.dumps(document, indent=1) + "\n").encode())
    return folder


def _finish(folder: Path, result: dict[str, Any]) -> PreferencesResult:
    """Write the figures beside the task and return them."""
    write_derived(folder / FIGURES, json.dumps(result, indent=1, default=str).encode())
    return PreferencesResult(result)
