"""Demonstrations: inputs with answers that earned their reward, as text in a prompt.

They stand in the region named `demonstrations`; in a prompt without one, behind the text of its first region. A
demonstration is taken from a training row, and refused where it would give away what validation measures. Each prompt of a
program has its own: what went into it and what came back, in the trace of the rollout.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from whet.environments.environment import Environment
from whet.prompt import Prompt
from whet.rewards.text import targets_of
from whet.search.copies import Copies, normalize_wording
from whet.search.edits import replace_region, text_in
from whet.search.regions import prompt_of_region
from whet.task.spec import REGION_POLICIES
from whet.types import Example, Rollout
from whet_client.media import SOURCE
from whet_client.prompt.fence import LOOKS_LIKE_MARKER, without_markers
from whet_client.prompt.slots import SLOT, fill

REGION = "demonstrations"
LONGEST = 4000
"""Characters of a demonstration at most."""


@dataclass(frozen=True)
class Demonstration:
    """An input and an answer to it, from the row with the id `row`. `steps`: of a program, name, input and answer by prompt.
    `labelled_input` is the input with the labels that the prompt puts before its slots, `cue` the label before the answer;
    empty where it has none."""

    row: str
    question: str
    answer: str
    steps: tuple[tuple[str, str, str], ...] = ()
    labelled_input: str = ""
    cue: str = ""

    @property
    def text(self) -> str:
        """The text in a prompt; of a program, the text in all its prompts."""
        return "\n\n".join(self.texts.values())

    @property
    def texts(self) -> dict[str, str]:
        """The text in each prompt of a program, by name; in the only prompt, by ''."""
        if not self.steps:
            labelled_input = self.labelled_input or f"{INPUT} {self.question.strip()}"
            return {"": f"{labelled_input}\n{self.cue or ANSWER} {self.answer.strip()}"}
        return {
            name: f"{INPUT} {question.strip()}\n{ANSWER} {answer.strip()}"
            for name, question, answer in self.steps
        }


def demonstrate(known: Prompt, row: Example, answer: str) -> Demonstration:
    """A row with an answer, labelled as the prompt `known` labels its inputs.

    Where each slot stands alone behind a label, as in `News: {{text}}`, these lines are the input; a last line that is a label,
    as in `Topic:`, stands before the answer. Else the labels are `INPUT` and `ANSWER`.
    """
    lines, cue = _labels(known)
    return Demonstration(row.id, row.user_text, answer, (), fill("\n".join(lines), row.values).strip(), cue)


def _labels(known: Prompt) -> tuple[list[str], str]:
    """The lines of a prompt that hold a label and a slot, and its last line where that is a label; none where a slot stands
    otherwise."""
    around = [line.strip() for line in _around_regions(known).splitlines() if line.strip()]
    held = [line for line in around if SLOT.search(line)]
    if not held or not all(_LABELLED.fullmatch(line) for line in held):
        return [], ""
    last = around[-1]
    return held, last if last.endswith(_COLONS) and len(last) <= _LABEL and last not in held else ""


def _around_regions(known: Prompt) -> str:
    """The text of a prompt around its regions; empty of a program."""
    contents = [] if known.parts else [m.content for m in known.messages]
    for region in sorted(known.regions, key=lambda region: -region.start) if contents else ():
        text = contents[region.message]
        contents[region.message] = f"{text[: region.start]}\n{text[region.stop :]}"
    return "\n".join(without_markers(text) for text in contents)


def demonstrations(
    env: Environment,
    known: Prompt,
    rollouts: Sequence[Rollout],
    threshold: float = 1.0,
    objections: Callable[[str], Sequence[str]] = lambda text: (),
) -> list[Demonstration]:
    """A demonstration of each training row with a rollout whose reward reaches `threshold`, a share of the reward's range: of
    its best one. Without those that are `refused`, or that `objections` (such as `guard.secrets`) has something against."""
    rows = {row.id: row for row in env.train}
    least = env.reward.low + threshold * (env.reward.high - env.reward.low)
    best: dict[str, Rollout] = {}
    for rollout in rollouts:
        if rollout.error is None and rollout.reward >= least - 1e-9:
            best[rollout.example_id] = max(
                best.get(rollout.example_id, rollout), rollout, key=lambda r: r.reward
            )
    made = [
        replace(demonstrate(known, rows[name], rollout.output), steps=_steps(known, rows[name], rollout))
        for name, rollout in best.items()
    ]
    refuse = demonstration_filter(env, known)
    return [demo for demo in made if not refuse(demo) and not objections(demo.text)]


def label_rows(env: Environment, known: Prompt, rows: Sequence[Example]) -> list[Demonstration]:
    """Demonstrations of rows whose target is a text, with the target as the answer; under the same rules. None of a program:
    a target is its answer, and no prompt's."""
    if known.parts:
        return []
    refuse = demonstration_filter(env, known)
    made = [demonstrate(known, row, targets_of(row)[0]) for row in rows if isinstance(row.target, str)]
    return [demonstration for demonstration in made if not refuse(demonstration)]


def rows_not_shown(rows: Sequence[Example], demos: Iterable[Demonstration]) -> list[Example]:
    """The rows that no demonstration is of, nor of another row with the same input: those a prompt that shows them has solved."""
    inputs = {normalize_wording(demo.question) for demo in demos}
    return [row for row in rows if normalize_wording(row.user_text) not in inputs] if inputs else list(rows)


def _steps(known: Prompt, row: Example, rollout: Rollout) -> tuple[tuple[str, str, str], ...]:
    """The last step under each prompt of a program. A text with the role `system` is the prompt itself."""
    steps = {
        step.prompt: step for step in rollout.steps if step.role != "tool" and step.prompt in known.parts
    }
    inputs = {name: {k: v for k, v in s.inputs.items() if k != "system"} for name, s in steps.items()}
    return tuple(
        (name, Example("", inputs[name]).user_text if inputs[name] else row.user_text, step.output)
        for name, step in steps.items()
    )


def demonstration_filter(env: Environment, known: Prompt) -> Callable[[Demonstration], bool]:
    """Whether a demonstration must not be shown.

    It is empty, too long, holds a slot, a fence marker, or an image, a sound or a file (regions are text); its input is that of a
    validation row; or it has 32 characters in common with a validation row and with no other training row (what several training
    rows hold is the form of the task). Test rows are out of a method's reach; the report warns of what the best prompt copies
    from them.
    """
    same = {normalize_wording(row.user_text) for row in env.validation}
    private = [text for row in env.validation for text in _texts(row)]
    texts = {row.id: "\x00".join(_texts(row)) for row in env.train}
    copies = Copies(private, known.source)

    def refuse(demonstration: Demonstration) -> bool:
        text = demonstration.text
        if not demonstration.answer.strip() or max(map(len, demonstration.texts.values())) > LONGEST:
            return True
        if SLOT.search(text) or LOOKS_LIKE_MARKER.search(text) or "\x00" in text or SOURCE.search(text):
            return True
        if normalize_wording(demonstration.question) in same:
            return True
        if not copies.piece(text):
            return False
        others = "\x00".join(text for row, text in texts.items() if row != demonstration.row)
        return bool(Copies(private, f"{known.source}\x00{others}").piece(text))

    return refuse


def _texts(row: Example) -> list[str]:
    return [row.user_text, *([row.target] if isinstance(row.target, str) else [])]


def with_demonstrations(
    start: Prompt, demos: Sequence[Demonstration], instruction: Prompt | None = None
) -> Prompt | None:
    """A prompt with demonstrations: `start`, or `instruction`, which descends from it by edits of the other regions.

    None where the prompt refuses the text. Without demonstrations the region stays as it is in `start`.
    """
    prompt: Prompt | None = instruction or start
    for part in [prompt_of_region(start, start.focus)] if start.focus else start.parts or [""]:
        block = shown_block(demos, part)
        if block and prompt is not None:
            prompt = _with_demonstrations(start, prompt, part, block)
    return prompt


def _with_demonstrations(start: Prompt, prompt: Prompt, part: str, block: str) -> Prompt | None:
    """`prompt` with demonstrations of one of its parts; itself where nothing of that part may be edited."""
    inside = {region.name for region in start.regions if prompt_of_region(start, region.name) == part}
    own = next(
        (
            region.name
            for region in start.regions
            if holds_demonstrations(start, region.name) and region.name in inside
        ),
        None,
    )
    if own is not None:
        return replace_region(prompt, block, own)
    name = next((region for region in editable(start) if region in inside), None)
    if name is None:
        return prompt
    text = text_in(start.with_focus(name), prompt).rstrip()
    return replace_region(prompt.restore(name, start), f"{text}\n\n{HEAD}\n\n{block}\n".lstrip(), name)


def shown_block(demos: Sequence[Demonstration], part: str = "") -> str:
    """Demonstrations as they stand in a prompt, or in one of a program's."""
    return "\n\n".join(demo.texts[part] for demo in demos if part in demo.texts)


def holds_demonstrations(start: Prompt, region: str) -> bool:
    """Whether a region is that of demonstrations, of the prompt or of one of a program's."""
    return (start.part_of(region)[1] if start.parts else region) == REGION


def instruction_regions(start: Prompt) -> list[str]:
    """The names of the `editable` regions that hold instructions; none where all that may be edited are demonstrations."""
    return [name for name in editable(start) if not holds_demonstrations(start, name)]


def edits_several(prompt: Prompt, policy: str) -> bool:
    """Whether a search that edits all regions at once has several that hold instructions; not where the policy names one."""
    return policy in REGION_POLICIES and len(instruction_regions(prompt)) > 1


def editable(start: Prompt) -> list[str]:
    """The names of the regions that a method may write instructions into: the one in focus, or all but demonstrations."""
    if start.focus is not None:
        return [start.focus]
    names = [region.name for region in start.regions]
    return [name for name in names if not holds_demonstrations(start, name)] or names


def random_set(rng: random.Random, pool: Sequence[Demonstration], most: int) -> list[Demonstration]:
    """One to `most` demonstrations in random order."""
    return rng.sample(list(pool), rng.randint(1, min(most, len(pool))))


def cross_demonstrations(
    rng: random.Random, first: Sequence[Demonstration], second: Sequence[Demonstration]
) -> list[Demonstration]:
    """Demonstrations of both parents, as many as they have on average."""
    union = list({demo.row: demo for demo in [*first, *second]}.values())
    return rng.sample(union, min(len(union), (len(first) + len(second)) // 2))


def mutate_demonstrations(
    rng: random.Random, demos: Sequence[Demonstration], pool: Sequence[Demonstration], most: int
) -> list[Demonstration]:
    """The demonstrations with one more, one fewer or as many, each by a chance of a third, in a new order."""
    held, change = {demo.row for demo in demos}, rng.randrange(3)
    fresh = [demo for demo in pool if demo.row not in held]
    changed = rng.sample(list(demos), len(demos))
    if change == 0 and fresh and len(demos) < most:
        changed.insert(rng.randint(0, len(changed)), rng.choice(fresh))
    return changed[1:] if change == 1 else changed


HEAD = "Examples:"
INPUT = "Input:"
ANSWER = "Answer:"
_COLONS, _LABEL = (":", "："), 40
_LABELLED = re.compile(rf"[^{{}}]{{1,{_LABEL - 1}}}[:：]\s*{SLOT.pattern}")
"""A label of at most 40 characters, and a slot behind it."""
