"""omni: several methods on a part of the budget each, then a fresh one from the best that was found.

Omni, of gepa's `optimize_anything` (2026; gepa-ai/gepa, blog of 2026-07-22; no paper). The choice of the method is searched too.

    for each of `methods`: run it from the start on an equal share of the budget
    best <- the start, or the best of what they found
    run a fresh method from best on the last share; return the best

Differences from gepa's:
1. All stages choose on the same validation rows, and what they found is compared there. The package takes each engine's own
   score.
2. The result is the best of all stages and the start. The package's *sequential* returns the last stage's.
3. A share is an equal part of what is left, so what one method leaves goes to the next ones.
4. The fresh method is the one that found the best, or the one named in `last`. Where none found anything, it is the first one
   again.
5. Within a limit on calls, methods at the end of the list are left out until a stage has 75 task calls and 6 of the optimizer.
6. A method is run as the registry has it, under its own defaults. Its version is recorded, and a resume under another is refused.

Run it:  whet optimize TASK --method omni --set methods=gepa,opro,bootstrap --lm openai/NAME --optimizer-lm openai/NAME
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from whet.environments.environment import Environment
from whet.errors import UsageError, named_fields
from whet.methods.method import OPTIMIZER, OPTIMIZER_OPTIONAL, Method, MethodEntry, configure
from whet.prompt import Prompt
from whet.rl import LanguagePolicy
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.stages import Stage, common_rows, most_stages, record_stage, stage_limits

ENTRY = MethodEntry(
    "omni",
    "Omni: several methods, then a fresh one from the best",
    version=1,
    rank=95,
    when="you do not know which method suits the task, and there are a thousand calls or more",
    paper="gepa's optimize_anything, 2026",
    needs=("optimizer",),
    edits_all=True,
    combines=True,
)


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of omni."""

    methods: str = "gepa,opro,bootstrap"
    """The methods that explore, by name, the most promising first."""
    last: str = ""
    """The method of the last stage; by default the method that found the best prompt."""
    fresh: bool = True
    """Whether there is a last stage; otherwise, the other stages get its share."""


def check(env: Environment, config: Config, methods: Callable[[str], Method]) -> None:
    """Raises UsageError for a method that there is not, that runs others, or that needs more than models that write."""
    if not exploring_methods(config):
        raise UsageError("omni: methods names none. Write for example methods=gepa,opro,bootstrap.")
    for name in dict.fromkeys([*exploring_methods(config), *([config.last] if config.last else [])]):
        method = methods(name)
        if (
            method.entry.combines
            or set(method.entry.needs) - {OPTIMIZER, OPTIMIZER_OPTIONAL}
            or method.deploys()
        ):
            raise UsageError(
                f"omni: {name} is no method for a stage: it must search for a text, with models that write."
            )
        if method.check is not None:
            method.check(env, configure(method, {}))


def exploring_methods(config: Config) -> list[str]:
    """The methods that explore."""
    return list(dict.fromkeys(name.strip() for name in config.methods.split(",") if name.strip()))


async def omni(
    run: Run,
    env: Environment,
    policy: LanguagePolicy,
    start: Prompt,
    config: Config,
    methods: Callable[[str], Method],
) -> Candidate:
    """A portfolio of methods; see the module."""
    names = exploring_methods(config)
    stages = min(len(names) + config.fresh, max(1, most_stages(run.limits, *LEAST)))
    names = names[: max(1, int(stages) - config.fresh)]
    count = len(names) + (config.fresh and stages > 1)
    env = common_rows(run, env, 1 + count, writes=True)
    archive, spent, finders = Archive(), Counter[str](), dict[str, str]()
    best = await archive.validate(run, env, [Candidate(start)])
    each = len(env.validation) * int(getattr(env, "calls", 1))
    spent["task"] += each

    async def play(branch: Run, job: tuple[int, str]) -> Candidate:
        number, name = job
        left = count - number
        method, leads = methods(name), best == archive.incumbent
        stage = Stage(branch, stage_limits(run.limits, spent, left * each, left), leads=leads, spent=spent)
        await record_stage(branch, name, method.entry.version)
        writes = {OPTIMIZER, OPTIMIZER_OPTIONAL} & set(method.entry.needs)
        result: Any = await method.coroutine(
            stage, env, policy if writes else None, best.prompt, configure(method, {})
        )
        return Candidate(result.prompt, (best.id,), name)

    for number in range(count):
        last = number == len(names)
        if last:
            best = archive.incumbent or best
        name = (config.last or finders.get(best.id, names[0])) if last else names[number]
        (result,) = await run.map(play, [(number, name)])
        finders.setdefault(result.id, name)
        if result.id not in archive.validated:
            spent["task"] += each
        archive.add(run, result)
        await archive.validate(run, env, [result])
    return archive.incumbent or best


LEAST = 75, 6
