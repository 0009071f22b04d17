"""In-context policy iteration: the model predicts what its actions would bring, from transitions in its context.

Brooks, Walls, Lewis, Singh: Large Language Models can Implement Policy Iteration. NeurIPS 2023. arXiv:2210.03821.
Code: github.com/ethanabrooks/icpi.

    for each of `episodes` episodes, in each state s:
        Q(s, a) <- rollout(s, a) for each action a:
            repeat: reward, done, s' <- LM(transitions of the same action, balanced over the outcomes)
                    a' <- LM(transitions of successful episodes);  Q += gamma^t reward
        act by the largest Q; at random while there are few successes: with probability 1 - 1 / (1 + exp(2 (3 - successes)))
        after the episode: store its transitions; it is a success if its return is above the threshold

Differences from the paper and its code:
1. The state is the text of the last observation. Actions are those of the world, the labels of the task, or `actions`.
2. A prediction that cannot be read ends the rollout; the code asks up to three times. A predicted reward lies within those that
   were recorded.
3. The reward comes first, and the last step of a rollout asks for nothing else: 4 `horizon` - 3 calls for each action.
4. An action of which nothing is recorded yet is worth 0, without a call.
5. The threshold is the middle of the range of the reward unless it is set. Episodes and horizon are ours.
6. The result is the agent: transitions that are kept, and the rollouts from them before each action. It must be better than the
   start prompt on validation examples. In use it learns nothing more.
7. `balanced: false` shows transitions as they come, and `argmax: false` acts as the successes did: the controls.
8. Under a limit on calls, validation rows and episodes are reduced to fit.

Run it:  whet optimize TASK --method icpi --lm openai/NAME
"""

from __future__ import annotations

from dataclasses import dataclass

from whet._util.fields import NonNegativeInt, RewardValue
from whet.environments import Return
from whet.environments.environment import Environment
from whet.environments.multiturn import MultiTurn
from whet.errors import UsageError, named_fields, parameter
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.minibatch import answered_rollouts, infinite_batches
from whet.search.plan import cut_validation, payable_rollouts
from whet.search.transitions import Planning, Transition, TransitionMemory, planner, planning_environment

ENTRY = MethodEntry(
    "icpi",
    "ICPI: the model predicts what actions bring, from transitions in its context, and acts greedily",
    version=1,
    rank=99,
    when="the task is a game with few actions, and a call costs little",
    paper="Brooks et al., NeurIPS 2023",
    arxiv="2210.03821",
    trains="nothing: transitions in the context",
)


@named_fields
@dataclass(frozen=True)
class Config(Planning):
    """Settings of ICPI."""

    episodes: NonNegativeInt = 40
    """Training episodes, one after the other."""
    threshold: RewardValue | None = None
    """Return above which an episode is a success; none means the middle of the range."""
    actions: str = ""
    """The actions, separated by `|`, if neither the environment nor labels name them."""

    def calls_per_answer(self, env: Environment) -> int:
        """Calls of the task model for one action at most, in the environment of a task."""
        return planner(env, TransitionMemory(list(actions_of(env, self))), self).calls


async def icpi(run: Run, env: Environment, policy: None, start: Prompt, config: Config) -> Candidate:
    """Policy iteration in context; see the module."""
    memory = TransitionMemory(list(actions_of(env, config)))
    planning = planning_environment(env, memory, config)
    plain, each = int(getattr(env, "calls", 1)), planning.calls
    rollouts = payable_rollouts(run, env, writes=False)
    calls = None if rollouts is None else rollouts * plain
    rows = len(env.validation) if calls is None else calls * 2 // 5 // (plain + each)
    cut = cut_validation(run, env, max(1, rows))
    archive = Archive()
    incumbent = await archive.validate(run, cut, [Candidate(start)])
    left = None if calls is None else calls - len(cut.validation) * (plain + each)
    episodes = config.episodes if left is None else min(config.episodes, max(0, left) // each)
    run.note_rounds(episodes, config.episodes)
    if not rows or not episodes or len(memory.actions) < 2:
        return incumbent
    examples = infinite_batches(run.rng, env.train)
    for number in range(episodes):
        exploring = planning_environment(env, memory, config, explore=True)
        row = next(examples)
        played = await exploring.play(run, start, row)
        (rollout,) = await exploring.judge(run, start, [row], [played])
        if not answered_rollouts([rollout]):
            continue
        last = [] if isinstance(env.reward, Return) else [rollout.reward]
        rewards = [*played.rewards[: len(played.turns) - len(last)], *last]
        seen = [*(turn.observation for turn in played.turns), played.last]
        ends = [False] * (len(seen) - 2) + [played.end == "done"]
        steps = zip(seen, (turn.text for turn in played.turns), rewards, ends, seen[1:], strict=False)
        memory.store([Transition(*step) for step in steps], rollout.reward > bar(env, config))
        run.log("episode", {"episode": number, "return": rollout.reward, "successes": len(memory.successes)})
    system = Candidate(start, (start.id,), "icpi", system=await run.keep(memory))
    archive.add(run, system)
    return await archive.validate(run, planning_environment(cut, memory, config), [system])


def actions_of(env: Environment, config: Config) -> tuple[str, ...]:
    """The actions: those of the settings, of the world, or the labels."""
    named = tuple(word.strip() for word in config.actions.split("|") if word.strip())
    return named or tuple(getattr(getattr(env, "world", None), "actions", ())) or tuple(env.labels)


def bar(env: Environment, config: Config) -> float:
    """The return above which an episode is a success."""
    middle = (env.reward.low + env.reward.high) / 2
    return middle if config.threshold is None else config.threshold


def deploy(env: Environment, policy: object, blob: bytes, config: Config) -> Environment:
    """The task in which a planner with the memory of a blob acts. Raises UsageError for another blob."""
    memory = TransitionMemory([])
    memory.load(blob)
    return planning_environment(env, memory, config)


def check(env: Environment, config: Config) -> None:
    """Raises UsageError for a task without two actions by name, and for one that is no question and no episode."""
    if type(env) not in (Environment, MultiTurn):
        raise UsageError("icpi chooses single actions; this task is a program or is made of several tasks.")
    if env.scores:
        raise UsageError(
            "icpi has the task model write predictions; this one only scores labels. Name one that writes."
        )
    if len(actions_of(env, config)) < 2:
        raise UsageError(
            "icpi chooses between actions, and this task names none: it has no labels, and its world no actions. Write "
            f"{parameter('config.actions', 'left|right')}."
        )
