"""From rows to examples: inputs, targets, labels and ids checked, each refusal with its place."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from whet.errors import UsageError, did_you_mean, near_word, task_setting
from whet.replies import indent_further_lines
from whet.rewards.reward import RewardFunction
from whet.rewards.targets import show_target
from whet.rewards.text import equals_no_text
from whet.task.rows import INPUT_NAMES, TARGET_NAMES, SourceRow
from whet.types import Example, Message, content_hash
from whet_client import media
from whet_client.prompt.chat import read_messages
from whet_client.prompt.document import MASK
from whet_client.prompt.slots import canonical_name, name_values, repeated_name, text_of_value
from whet_client.storable import show_value

_CHAT_TEXT = re.compile(r'\s*\[\s*\{\s*"(?:role|content)"\s*:')
_DATA_URL = re.compile(r"data:(image|audio|video)/[\w.+-]{1,40};base64,", re.IGNORECASE)
_SENT_URL = re.compile(r"data:(image|audio)/[\w.+-]{1,40};base64,[A-Za-z0-9+/=\s]+\Z", re.IGNORECASE)
_MEDIA = {"image": "an image", "audio": "a sound", "video": "a film"}
_PARTS = frozenset(("image_url", "input_image", "input_audio", "file"))
_UNSENT = _PARTS | {"inline_data", "image_bytes", "input_file"}
_TEXT_PARTS = ("text", "input_text")
MESSAGES = "messages"
"""The key of a row, or of its input, that may hold a conversation."""
LEAK = 0.9
"""Share of rows from which on an input that is equal to the target gives it away."""
MOST_ALIKE = 10
"""Rows from which on one target for all of them is said to be odd."""


@dataclass(frozen=True)
class Rules:
    """The rules that every row must satisfy."""

    slots: Mapping[str, str]
    """For each slot of the prompt, its file:line."""
    labels: Mapping[str, str]
    needs_target: bool
    reward: str
    """The name of the reward, for messages."""
    group: str | None = None
    """The key of a row's data; rows with the same value under it are not independent."""
    rewards: tuple[RewardFunction, ...] = ()
    """The rewards that compare with the target."""
    folder: Path = Path()
    """The folder of images whose names are relative."""
    shown: Sequence[str] | None = None
    """The values of an input that the slots show the model; None: it may see all values."""


@dataclass(frozen=True, slots=True)
class PlacedExample:
    """An example and the file:line it came from."""

    example: Example
    where: str


def make_examples(
    rows: Sequence[SourceRow], rules: Rules, ids: dict[str, tuple[str, bool]]
) -> tuple[list[PlacedExample], list[str]]:
    """Examples of one data file and warnings.

    `ids` maps known ids to their places and whether they were given, and grows. A row without an id gets one
    from its content, so that an exact repetition is dropped with a warning. Raises UsageError for the first
    row that breaks a rule.
    """
    examples: list[PlacedExample] = []
    own: set[str] = set()
    targets: dict[str, tuple[object, str]] = {}
    split: list[str] = []
    dropped: list[str] = []
    for row in rows:
        has_id = row.value.get("id") is not None
        example = _example(row, rules)
        first, first_given = ids.get(example.id, ("", False))
        if first and (has_id or first_given):
            raise UsageError(
                f'{row.where}: the id "{example.id}" stands already at {first}. '
                "Give each row an id of its own, in all files of the task, or leave ids out."
            )
        if example.id in own:
            dropped.append(f"{row.where} repeats {first}")
            continue
        own.add(example.id)
        ids.setdefault(example.id, (row.where, has_id))
        examples.append(PlacedExample(example, row.where))
        target, place = targets.setdefault(input_hash(example), (example.target, row.where))
        if rules.needs_target and target != example.target:
            split.append(f"{place} and {row.where}")
    warnings = _count_places(dropped, "row was", "rows were", "dropped as an exact repetition")
    empty = [p.where for p in examples if not p.example.user_text.strip()]
    warnings += _count_places(
        split, "row has", "rows have", "another target than an earlier row with the same input"
    )
    warnings += _count_places(empty, "row has", "rows have", "an empty input")
    gaps = [row.where for row in rows if _fills_with_null(row.value.get("input"), rules.slots)]
    warnings += _count_places(gaps, "row has", "rows have", "null for a slot, which is filled with nothing")
    chats = [p.where for p in examples if any(map(_CHAT_TEXT.match, p.example.values.values()))]
    warnings += _count_places(
        chats, "row holds", "rows hold", "messages as JSON text, which the model gets as one text"
    )
    warnings += _lost_of_conversations(rows)
    return examples, [*warnings, *(_target_warnings(examples, rules.rewards) if rules.needs_target else ())]


def _fills_with_null(value: object, slots: Mapping[str, str]) -> bool:
    """Whether an input has null for a slot of the prompt."""
    cells = value.items() if isinstance(value, Mapping) else ()
    return any(cell is None and canonical_name(key) in slots for key, cell in cells)


def _target_warnings(examples: Sequence[PlacedExample], rewards: Sequence[RewardFunction]) -> list[str]:
    """Warnings about targets that no answer equals, and about one that they all are."""
    values = [(p.example.target, p.where) for p in examples]
    never = [where for target, where in values if any(equals_no_text(reward, target) for reward in rewards)]
    warnings = _count_places(
        never, "row has", "rows have", "a target that no answer equals (nothing, or an object)"
    )
    warnings += _leaks(examples)
    first, where = values[0] if values else (None, "")
    if len(values) >= MOST_ALIKE and all(target == first for target, _ in values):
        warnings.append(
            f"{where}: all {len(values)} rows have the target {show_value(first)}; a prompt that says it is always right."
        )
    return warnings


def _leaks(examples: Sequence[PlacedExample]) -> list[str]:
    """A warning for each input that says the same as the target in nearly every row, where targets differ."""
    rows = [p.example for p in examples if isinstance(p.example.target, str | int | float)]
    targets = [fold_text(str(row.target)) for row in rows]
    if len(rows) < MOST_ALIKE or len(set(targets)) < 2:
        return []
    warnings = []
    for name in sorted(frozenset[str]().union(*(row.values.keys() for row in rows))):
        equal = sum(
            fold_text(row.values.get(name, "")) == target for row, target in zip(rows, targets, strict=True)
        )
        if equal >= LEAK * len(rows):
            warnings.append(
                f'The input "{name}" is equal to the target in {equal} of {len(rows)} rows: it gives the right answer away.'
            )
    return warnings


def fold_text(text: str) -> str:
    """A text for comparisons: NFKC, without case, blanks of any kind as single spaces."""
    return unicodedata.normalize("NFKC", " ".join(text.split())).casefold()


def input_hash(example: Example) -> str:
    """Content hash of the input alone, as far as the model sees it: rows that share it never stand in two splits. Forms of one
    text that look the same, composed or not and with either line end, are one."""
    if example.text is not None:
        return content_hash(_compose(example.text))
    return content_hash({name: _compose(value) for name, value in _visible_values(example).items()})


def repeated_inputs(parts: Iterable[Sequence[Example]]) -> list[str]:
    """A warning about rows whose input an earlier row of the same split has, each with the split's rows in `parts`."""
    repeated: list[str] = []
    for part in parts:
        first: dict[str, Example] = {}
        for example in part:
            earlier = first.setdefault(input_hash(example), example)
            if earlier is not example:
                repeated.append(f"{earlier.where or earlier.place} and {example.where or example.place}")
    warnings = _count_places(repeated, "row has", "rows have", "the same input as an earlier row")
    return [f"{warning} {_ANSWERED_ONCE}" for warning in warnings]


_ANSWERED_ONCE = (
    "A prompt answers each input once, also at a temperature above 0, and this answer counts for all rows with the input: such "
    "rows are no further samples."
)


def seen_text(example: Example) -> str:
    """The input as one text, as far as the model sees it."""
    return example.user_text if example.text is not None else Example("", _visible_values(example)).user_text


def _visible_values(example: Example) -> Mapping[str, str]:
    if example.shown is None:
        return example.values
    seen = {*example.shown, MESSAGES}
    return {name: value for name, value in example.values.items() if name in seen}


def shown_values(slots: Iterable[str], labels: Mapping[str, str]) -> Sequence[str] | None:
    """The values of an input that the slots of a prompt show the model, which answers in the slot of a label by itself; None for
    a prompt that no value fills, so that it gets the whole input."""
    return sorted({*slots} - ({MASK} if labels else set())) or None


def _compose(text: str) -> str:
    return (
        text
        if text.isascii() and "\r" not in text
        else unicodedata.normalize("NFC", text.replace("\r\n", "\n"))
    )


def _count_places(places: list[str], one: str, many: str, what: str) -> list[str]:
    if not places:
        return []
    return [f"{len(places)} {one if len(places) == 1 else many} {what} (first: {places[0]})."]


def _example(row: SourceRow, rules: Rules) -> Example:
    row = _mark_media(row, rules.folder)
    name = _id(row)
    row, messages = _take_conversation(row)
    values, text = _input(row, rules)
    target = _target(row, rules)
    whole = {**row.value, "id": name} if row.value.get("id") is None else row.value
    group = _group(row, rules.group)
    return Example(name, values, target, whole, text, group, row.where, messages=messages, shown=rules.shown)


def _take_conversation(row: SourceRow) -> tuple[SourceRow, tuple[Message, ...]]:
    """The row with its conversation as one text, and the messages of the conversation; none for any other row.

    The conversation is the input, or stands under `messages` in it or in the place of it. One that ends with the assistant
    brings the target, if the row has no other.
    """
    value = dict(row.value)
    conversation = _conversation_in(value)
    if conversation is None:
        return row, ()
    if "input" not in value:
        value["input"] = value.pop(MESSAGES)
    whole: Any = value["input"]
    inside = isinstance(whole, dict)
    messages = read_messages(conversation, row.where, logged=False)
    if messages[-1].role == "assistant" and value.get("target") is None:
        value["target"] = messages[-1].content
        messages = messages[:-1]
    if not messages or messages[-1].role != "user":
        raise UsageError(
            f"{row.where}: a conversation must end with the user, whom the model answers; this one ends with "
            f"{messages[-1].role if messages else 'nothing'}. Remove what follows the last message of the user."
        )
    text = "\n".join(f"{_speaker(message)}: {indent_further_lines(message.content)}" for message in messages)
    value["input"] = {**{k: v for k, v in whole.items() if k != MESSAGES}, MESSAGES: text} if inside else text
    return replace(row, value=value), messages


def _speaker(message: Message) -> str:
    """Who speaks: the role, and the name on one line where the message has one."""
    return " ".join([message.role, *(message.name or "").split()])


def _conversation_in(value: Mapping[str, Any]) -> list[Any] | None:
    """The messages that are the input of a row, stand in it, or in the place of it; None in any other row."""
    whole = value.get("input") if "input" in value else value.get(MESSAGES)
    if isinstance(whole, dict) and "input" in value:
        whole = whole.get(MESSAGES)
    return whole if isinstance(whole, list) and looks_like_messages(whole) else None


def _lost_of_conversations(rows: Sequence[SourceRow]) -> list[str]:
    """Warnings about what the model does not read of conversations as it stands."""
    placed = [(row.where, messages) for row in rows if (messages := _conversation_in(row.value))]
    ruled = [where for where, messages in placed if any(m["role"] == "developer" for m in messages)]
    system = "messages of the role developer, which is read as system"
    return _count_places(ruled, "row has", "rows have", system)


def looks_like_messages(value: object) -> bool:
    """Whether a value is a list of messages, each with `role` and `content`."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(item, Mapping) and {"role", "content"} <= item.keys() for item in value)
    )


def _mark_media(row: SourceRow, folder: Path) -> SourceRow:
    """The row with a mark in the place of each image, sound and file of its input (`whet._util.media`)."""
    value = {**row.value}
    for key in ("input", MESSAGES):
        inner = value.get(key)
        if (
            isinstance(inner, Mapping) and inner.get("type") not in _PARTS
        ):  # its keys are slots, whatever they are called
            value[key] = {name: _mark_values(one, folder, row.where) for name, one in inner.items()}
        elif key in value:
            value[key] = _mark_values(inner, folder, row.where)
    return replace(row, value=value) if value != row.value else row


def _file_of(folder: Path, name: str, where: str) -> Path:
    """The file of the task folder that a row names. Raises UsageError for one outside of it, but in rows of Python."""
    path = folder / name
    if not where.startswith("data[") and not path.resolve().is_relative_to(folder.resolve()):
        raise UsageError(f"{where}: {name} lies outside of the task's folder. Copy it into the folder.")
    return path


def _mark_values(value: Any, folder: Path, where: str) -> Any:
    """A value of an input in which marks stand for parts of media; a list of texts and such parts is one text."""
    if isinstance(value, str):
        return media.keep_data_url(value, where) if _SENT_URL.match(value) else value
    if isinstance(value, list):
        inner = [_mark_values(item, folder, where) for item in value]
        if (
            any(isinstance(item, Mapping) and item.get("type") in _TEXT_PARTS for item in value)
            and inner != value
        ):
            texts = [item["text"] if isinstance(item, Mapping) else str(item) for item in inner]
            return "\n".join(texts)
        return inner
    if not isinstance(value, Mapping):
        return value
    if {"bytes", "path"} == value.keys():
        if isinstance(value["bytes"], bytes):
            return media.keep_bytes(value["bytes"], str(value["path"] or "file"), where)
        return media.keep_file(_file_of(folder, str(value["path"]), where), where)
    kind = next(iter(value), "")
    if len(value) == 1 and kind in media.KINDS and media.is_named(kind, value[kind]):
        text = value[kind]
        if kind != "image" and text.startswith(("https://", "http://")):
            raise UsageError(
                f'{where}: the address "{text}" cannot be sent as {_MEDIA.get(kind, "a file")}: models read addresses of images '
                "only. Download it, and name the file."
            )
        if text.startswith(("https://", "http://", "data:")):
            return media.keep_part({"type": "image_url", "image_url": {"url": text}}, where)
        return media.keep_file(_file_of(folder, text, where), where)
    alone = (
        len(value) == 1
        and bool(_PARTS & value.keys())
        and (kind != "file" or isinstance(value[kind], Mapping))
    )
    if value.get("type") in _PARTS or alone:
        return media.keep_part(value, where)
    return {key: _mark_values(one, folder, where) for key, one in value.items()}


def holds_media(value: object) -> bool:
    """Whether a value of an input is an image, a sound or a file, or holds one."""
    if isinstance(value, list):
        return any(map(holds_media, value))
    if not isinstance(value, Mapping):
        return False
    kind = next(iter(value), "")
    named = len(value) == 1 and (kind in media.KINDS or kind in _PARTS)
    is_part = {"bytes", "path"} == value.keys() or value.get("type") in _PARTS or named
    return is_part or any(map(holds_media, value.values()))


def _group(row: SourceRow, key: str | None) -> str | None:
    """The value of a row under the key that groups rows, beside its input or inside it."""
    if key is None:
        return None
    inside = row.value["input"] if isinstance(row.value["input"], dict) else {}
    value = row.value.get(key, inside.get(key))
    if value is None:
        keys = [name for name in (*row.value, *inside) if name not in ("id", "input", "target")]
        hint = near_word(key, keys) or f' Add "{key}" to the row, or take `group` out of the task.'
        if key in keys:
            hint = " It is null there. Write a text or a whole number."
        raise UsageError(f'{row.where}: the row has no "{key}", by which the task groups its rows.{hint}')
    if isinstance(value, bool) or not isinstance(value, str | int) or not str(value).strip():
        raise UsageError(
            f'{row.where}: "{key}" groups rows and must be a text or a whole number; this is {show_value(value)}.'
        )
    return str(value)


def _id(row: SourceRow) -> str:
    value = row.value.get("id")
    if value is None:
        return content_hash({k: v for k, v in row.value.items() if k != "id"})[:12]
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or not value.strip():
        raise UsageError(
            f"{row.where}: an id must be a text; this is {show_value(value)}. Write a text, or leave ids out."
        )
    return value


def _input(row: SourceRow, rules: Rules) -> tuple[dict[str, str], str | None]:
    """Values for slots, and the input as one text when it is one."""
    if "input" not in row.value:
        raise UsageError(f'{row.where}: the row has no "input".{_instead(row.value, "input", rules)}')
    value = row.value["input"]
    if (unsent := _find_media(value)) is not None:
        raise UsageError(
            f"{row.where}: the input holds {unsent}, which would arrive as JSON in one message. Write what the model should "
            'read as texts and images, one for each slot: {"image": "photo.png"}.'
        )
    if isinstance(value, str):
        return {"input": value}, value
    if not isinstance(value, dict):
        raise UsageError(
            f'{row.where}: "input" must be a text or an object; this is {show_value(value)}. '
            'Put it in quotes, or write {"name": ...} to fill the slot {{name}}.'
        )
    if not value:
        raise UsageError(
            f'{row.where}: "input" is an empty object. Give it a key for each slot of the prompt.'
        )
    if MASK in value and MASK in rules.slots and rules.labels:
        raise UsageError(
            f'{row.where}: the input has a key "mask", but {{{{mask}}}} is where the label goes. Rename it.'
        )
    if (twice := repeated_name(value)) is not None:
        raise UsageError(
            f"{row.where}: the inputs {show_value(twice[0])} and {show_value(twice[1])} have the same name "
            "but for its writing. Rename one."
        )
    return name_values({key: text_of_value(cell) for key, cell in value.items()}), None


def _find_media(value: object) -> str | None:
    """The parts of an input that are not text: messages with roles, or an image, a sound, a file; None where there are none."""
    if isinstance(value, str):
        kind = _DATA_URL.search(value)
        return None if kind is None else f"{_MEDIA[kind[1].lower()]} (base64)"
    if isinstance(value, Mapping):
        kind_of_part = str(value.get("type", ""))
        keys = (_UNSENT - {"file"}) & value.keys()
        if kind_of_part in _UNSENT or keys:
            return f"a part of the type {kind_of_part or next(iter(keys))}"
        if {"bytes", "path"} == value.keys():
            return "a file (bytes and path)"
        inside = next(filter(None, map(_find_media, value.values())), None)
        if inside is None and "role" in value and "content" in value:
            return "messages (role and content)"
        return inside
    if isinstance(value, list):
        return next(filter(None, map(_find_media, value)), None)
    return None


def _instead(row: Mapping[str, Any], name: str, rules: Rules) -> str:
    """The remedy for a row that lacks `name`: the key that was probably meant."""
    keys = [key for key in row if key not in ("id", "input", "target")]
    if name == "target" and isinstance(row.get("input"), Mapping) and not keys:
        return _mapping_of_columns(list(row["input"]), rules)
    slots = [key for key in keys if key in rules.slots]
    missing = sorted(rules.slots.keys() - {canonical_name(key) for key in keys} - {MASK})
    if name == "input" and slots and missing:
        return f" Its keys fill no slot {{{{{missing[0]}}}}}.{_slot_remedy(missing[0], keys)}"
    if name == "input" and slots:
        inner = ", ".join(f'"{key}": ...' for key in slots)
        return f' Did you mean "input": {{{inner}}}? Keys for slots stand inside "input".'
    known = INPUT_NAMES if name == "input" else TARGET_NAMES
    lower = {key.strip().casefold(): key for key in reversed(keys)}
    meant = next((lower[word] for word in (name, *known) if word in lower), None)
    if meant is not None:
        return f' Did you mean "{meant}"? Rename it to "{name}".'
    return near_word(name, keys) or (
        f' Its keys: {", ".join(row)}. Add "{name}".' if row else f' It is empty. Add "{name}".'
    )


def _mapping_of_columns(columns: Sequence[str], rules: Rules) -> str:
    """Suggest a mapping of columns to input and target, if no column has these names; the slots that no column fills come
    first."""
    known = {canonical_name(column): column for column in columns}
    slots = [slot for slot in rules.slots if slot not in known and slot != MASK]
    unfilled = "".join(
        f" No column fills the slot {{{{{slot}}}}}.{did_you_mean(slot, columns)}" for slot in slots
    )
    return (
        f" All its columns are input: {', '.join(columns)}.{unfilled} Call the column with the right answer target, and those "
        "with what the model reads input or like the slots of the prompt; or let "
        "`whet init FOLDER --from FILE --input COLUMN --target COLUMN` do so."
    )


def _target(row: SourceRow, rules: Rules) -> object:
    target = row.value.get("target")
    if target is None:
        if rules.needs_target:
            problem = "has no" if "target" not in row.value else "has null as its"
            raise UsageError(
                f'{row.where}: the row {problem} "target", which the reward {rules.reward} compares with.'
                f"{_instead(row.value, 'target', rules)}"
            )
        return None
    if not rules.labels:
        return target
    label = _label(target, rules.labels)
    if label is None:
        by_word = [name for name, word in rules.labels.items() if word == target]
        problem = (
            f' It is the word for "{by_word[0]}": write that.'
            if by_word
            else did_you_mean(str(target), rules.labels)
        )
        problem += _truth(target, rules.labels)
        raise UsageError(f"{row.where}: the target {show_value(target)} is not one of the labels.{problem}")
    return label


def _truth(target: object, labels: Mapping[str, str]) -> str:
    """The remedy for a truth value where labels are words that some programs read as truth values, or the reverse."""
    if isinstance(target, bool):
        return (
            f" It is the truth value {str(target).lower()}: a program that read the words took them for one. "
            f'Write the label as a text in quotes: "target": "{next(iter(labels))}".'
        )
    return ""


def _label(target: object, labels: Mapping[str, str]) -> str | None:
    """The label that a target names: the same text; a number or a truth value by the text it is written
    as.
    """
    if isinstance(target, bool):
        return next((label for label in labels if label.casefold() == str(target).casefold()), None)
    words = (str(target), show_target(target)) if isinstance(target, str | int | float) else ()
    return next((word for word in words if word in labels), None)


def check_slots(examples: Sequence[PlacedExample], rules: Rules) -> list[str]:
    """Every slot of the prompt must be filled by every row; returns warnings about keys that no slot uses.

    `mask` is filled by the model when the task has labels. Raises UsageError at the prompt when no row fills
    a slot, else at the first row that lacks it.
    """
    needed = {name: at for name, at in rules.slots.items() if not (name == MASK and rules.labels)}
    known = {key for placed in examples for key in placed.example.values}
    for name, at in sorted(needed.items(), key=lambda item: item[1]):
        if name not in known:
            in_python = "Give labels=[...], or `labels:` in the task.yaml of a folder"
            more = f" {task_setting(in_python, 'Add `labels:` to task.yaml')}."
            remedy = more if name == MASK else _slot_remedy(name, known)
            raise UsageError(f"{at}: no row fills the slot {{{{{name}}}}}.{remedy}")
        for placed in examples:
            if name not in placed.example.values:
                raise UsageError(
                    f'{placed.where}: the input has no "{name}", which fills {{{{{name}}}}} ({at}).'
                    f"{_slot_remedy(name, placed.example.values)}"
                )
    sent = {MESSAGES} if any(placed.example.messages for placed in examples) else set()
    unused = sorted(known - needed.keys() - sent)
    if needed and unused:
        return [f"No slot of the prompt uses the input's {', '.join(unused)}: the model does not see it."]
    return []


def _slot_remedy(name: str, known: Iterable[str]) -> str:
    keys = sorted(known)
    if hint := near_word(name, keys):
        return hint
    literal = (
        f'. Where the model should read it as it stands, fill it with itself: "{name}": "{{{{{name}}}}}".'
    )
    if keys == ["input"]:
        return f' A text fills {{{{input}}}}; write "input": {{"{name}": ...}} in the rows to fill this one{literal}'
    return f' The inputs have {", ".join(keys)}. Add "{name}" to every row\'s input, or change the prompt{literal}'
