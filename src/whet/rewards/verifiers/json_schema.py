"""The reward that validates JSON by a JSON Schema."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, Protocol

from whet._util.storable import read_file
from whet.replies import read_json_float
from whet.rewards.asking import RewardOptions
from whet.rewards.fields_of_json import json_in
from whet.rewards.targets import quote_target
from whet.rewards.verifiers.reading import LONGEST_ANSWER, cut, flag_option
from whet.run import Run
from whet.types import Completion, Example, Reward

_MOST_NAMED = 5
_BACKTRACKS = 100_000
"""Steps back that one match of a `pattern` may take."""


class _Validator(Protocol):
    def iter_errors(self, instance: object) -> Iterator[Any]: ...


@dataclass(frozen=True)
class JsonSchema:
    """1 when the JSON of the answer is valid under the schema, else 0, with the violations and their places as critique.

    The JSON is the whole answer, else the last fenced block, else what stands in the prose; with `bare` nothing else may stand
    there. `format` is checked. References lead into the schema itself only.
    """

    schema: Mapping[str, object] | bool
    validator: _Validator = field(compare=False, repr=False)
    bare: bool = False
    files: tuple[Path, ...] = ()
    name: str = "json_schema"
    low: float = 0.0
    high: float = 1.0
    needs: frozenset[str] = frozenset()

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        text = completion.text
        if len(text) > LONGEST_ANSWER:
            return Reward(
                0.0, critique=f"The answer has {len(text):,} characters; {LONGEST_ANSWER:,} are read at most."
            )
        is_json, value = self._value(text)
        if not is_json:
            return Reward(0.0, critique=f"The answer {quote_target(text)} holds no JSON that can be parsed.")
        faults = self._faults(value)
        return Reward(0.0, critique="\n".join(faults)) if faults else Reward(1.0)

    def _value(self, text: str) -> tuple[bool, object]:
        is_object = isinstance(self.schema, Mapping) and self.schema.get("type") == "object"
        values = json_in(text, lambda value: isinstance(value, dict) or not is_object)[:1]
        if values and (not self.bare or text.strip()[:1] in ("{", "[")):
            whole = not self.bare or _load(text) == (True, values[0])
            return (True, values[0]) if whole else (False, None)
        return _load(text)

    def _faults(self, value: object) -> list[str]:
        faults: list[str] = []
        try:
            for error in self.validator.iter_errors(value):
                if len(faults) == _MOST_NAMED:
                    return [*faults, "More violations follow."]
                place = "".join(f"[{json.dumps(key)}]" for key in error.instance_path)
                faults.append(
                    f"The JSON{' at ' + place if place else ''} breaks the schema: {cut(error.message)}."
                )
        except (ValueError, OverflowError, RecursionError) as error:
            faults.append(f"The JSON cannot be validated: {cut(str(error))}.")
        return faults


def _load(text: str) -> tuple[bool, object]:
    """Whether a text is JSON of a plain value, object or list that is not nested too deep; and the value."""
    try:
        value = json.loads(text, parse_float=read_json_float, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return False, None
    return (not isinstance(value, dict | list) or value in json_in(text)[:1]), value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _refuse_remote(uri: str) -> NoReturn:
    raise ValueError(f"the reference {uri} leads outside the schema; copy what it names into `$defs`")


def build_json_schema(options: RewardOptions) -> JsonSchema:
    """`reward: {json_schema: {schema: {...} or FILE.json, bare: false}}`. Raises UsageError with the place."""
    options.only("schema", "bare")
    schema, files = options.values.get("schema"), tuple[Path, ...]()
    if isinstance(schema, str):
        path = options.folder / schema
        try:
            schema, files = json.loads(read_file(path)), (path,)
        except (OSError, ValueError, RecursionError) as error:
            options.refuse(f"schema: the file {path} cannot be read as JSON: {error}.")
    if not isinstance(schema, Mapping | bool):
        options.refuse(
            f"the option schema must be a JSON Schema or the name of a file that holds one; this is {schema!r}."
        )
    try:
        import jsonschema_rs
    except ImportError:
        options.refuse("it needs jsonschema-rs. Install it with: pip install 'whet[verifiers]'")
    plain: Any = schema
    try:
        validator = jsonschema_rs.validator_for(
            plain,
            validate_formats=True,
            retriever=_refuse_remote,
            pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=_BACKTRACKS),
        )
    except (ValueError, jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as error:
        options.refuse(f"this is no valid JSON Schema: {cut(str(error))}.")
    return JsonSchema(schema, validator, flag_option(options, "bare", False), files)
