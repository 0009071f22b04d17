"""Prefix tuning: keys and values in front of every layer of a frozen model, learned by gradient descent.

Li, Liang: Prefix-Tuning: Optimizing Continuous Prompts for Generation. ACL 2021. arXiv:2101.00190. Section 4.

    P <- MLP(P')                              keys and values of n virtual tokens, for each layer
    repeat: draw a batch of examples
            loss <- - mean log p(answer | P, prompt, input)      the model's own weights are frozen
            Adam step on the MLP and P'
    drop the MLP, keep P

The result is no text: nobody can read it, and it acts with this very model only. It is here to show what a readable
prompt gives up, and what it keeps (docs/methods/prefix.md).

Differences from the paper:
1. The virtual tokens stand before the whole prompt, whose text stays and is read as it is.
2. The state of the weights is chosen on validation examples, among some checks on the way and the start itself.
3. `hidden=0` leaves the MLP out and learns the prefix itself, which takes a higher rate.
4. In a sequence-to-sequence model the prefix stands in the decoder only.
5. Within a limit on calls, steps are cut; an example that is learned from is charged as one task call.

Run it:  whet optimize TASK --method prefix --lm hf/PATH
"""

from __future__ import annotations

from dataclasses import dataclass

from whet.environments.environment import Environment
from whet.prompt import Prompt
from whet.rl.soft import SoftPrompt, SoftPromptSettings, deploy_soft
from whet.rl.trained_candidates import TrainedCandidates, charge, deployed
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.minibatch import minibatch
from whet.search.plan import share_out

CHECKS = 8  # times that the weights are validated on the way


@dataclass(frozen=True)
class Config:
    """Settings of prefix tuning."""

    steps: int = 200
    """Updates of the prefix."""
    tokens: int = 8
    """Virtual tokens in front of each layer (n)."""
    batch: int = 16
    """Examples of an update."""
    lr: float = 5e-3
    """Adam's rate."""
    hidden: int = 128
    """Units of the MLP that computes the prefix; 0 learns the prefix itself."""


async def prefix(run: Run, env: Environment, policy: object, start: Prompt, config: Config) -> Candidate:
    """Gradient descent on keys and values; see the module. `policy` is not used."""
    soft = SoftPrompt(env.model, settings(config), run.rng.getrandbits(63))
    share = share_out(run, env, CHECKS - 1, 1, writes=False)
    batch = min(config.batch, len(env.train))
    steps = config.steps if share.rollouts is None else min(config.steps, share.rollouts // batch)
    archive = Archive()
    await archive.validate(run, share.env, [Candidate(start)])
    systems = TrainedCandidates(soft, start, "prefix", steps, min(steps, share.validations - 1))

    async def step(run: Run, number: int) -> None:
        examples = minibatch(run.rng, env.train, batch)
        await charge(run, "learn", examples)
        loss = soft.update(env, start, examples)
        run.log("step", {"step": number, "reward": -loss, **soft.figures})
        if systems.due(number):
            digest = await run.keep(soft)
            await systems.check(run, archive, deployed(share.env, soft.system(), digest), digest)

    await run.train(steps, step, soft)
    return systems.recall(archive)


def settings(config: Config) -> SoftPromptSettings:
    """Shape and update of the prefix."""
    return SoftPromptSettings("prefix", config.tokens, config.hidden, config.lr)


def deploy(env: Environment, policy: object, blob: bytes, config: Config) -> Environment:
    """The frozen model with a trained prefix in front of every text. Raises UsageError when the blob does not fit."""
    return deploy_soft(env, settings(config), blob)
