"""A method of your own: a hill climber, compared with random search on simulated models. No key, no network.

A method is a coroutine (run, env, policy, start, config) and a frozen config. All that costs money, time or chance goes
through `run`: so this one resumes after a kill, keeps within the budget and is proved like every other method.
"""

from dataclasses import dataclass

import whet
from whet.rl import LanguagePolicy
from whet.search.archive import Archive

WORDS = {"bad": "negative", "dull": "negative", "good": "positive", "lovely": "positive"}
ROWS = [{"input": f"Dish {i} was {w}.", "target": t} for i in range(50) for w, t in WORDS.items()]


@dataclass(frozen=True)
class Climb:
    """Settings of the hill climber."""

    steps: int = 8
    """Rounds."""
    width: int = 3
    """Rewrites in a round."""
    examples: int = 30
    """Training examples that each text is scored on."""


@whet.methods.register(title="Hill climbing", needs=("optimizer",))
async def climb(
    run: whet.Run, env: whet.Environment, policy: LanguagePolicy, start: whet.Prompt, config: Climb
) -> whet.Candidate:
    """Keep the best of a few rewrites, again and again."""
    archive, examples = Archive(), env.train[: config.examples]
    best = await archive.validate(run, env, [whet.Candidate(start)])
    for step in range(config.steps):
        question = f"Improve this instruction.\n\n{best.prompt.region_text()}"
        rewrites = await policy.rewrite(run, start, question, config.width, sample=step * config.width)
        new = {p.id: p for p in rewrites if p not in archive}
        for prompt, score in zip(
            new.values(), await env.score(run, list(new.values()), examples), strict=True
        ):
            archive.add(run, whet.Candidate(prompt, (best.id,), "rewrite", score))
        best = await archive.validate(run, env, archive.top(1))
    return best


comparison = whet.compare(
    "<!-- whet:begin -->\nWhat is it like?\n<!-- whet:end -->\nReview: {{input}}",
    [Climb(steps=4), "random_search"],
    data=ROWS,
    reward="exact_match",
    lm="scripted/labels",
    optimizer_lm="scripted/phrases",
    budget=whet.Budget(calls=1500),
    reader="none",
)
for name, row in comparison.methods.items():
    print(f"{name}: {row['test_mean']:.3f} on the sealed test, from {row['baseline_test']:.3f}")
print(comparison.runs[0].best.prompt.text)
