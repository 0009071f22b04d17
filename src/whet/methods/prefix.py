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
from whet.errors import named_fields
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.rl.soft_prompt import SoftPromptConfig, deploy_soft_prompt, train_soft_prompt
from whet.run import Run
from whet.search.archive import Candidate

ENTRY = MethodEntry(
    "prefix",
    "Prefix tuning: trained keys and values, not a text",
    version=1,
    rank=270,
    when="you want to know how much reward a readable prompt gives up, compared with trained vectors",
    paper="Li and Liang, ACL 2021",
    arxiv="2101.00190",
    needs=("local",),
    trains="virtual tokens in front of a frozen model",
    extra="train",
    bound="its vectors belong to one model's weights",
)


@named_fields
@dataclass(frozen=True)
class Config(SoftPromptConfig):
    """Settings of prefix tuning; `hidden=0` learns the keys and values themselves, without a network."""


async def prefix(run: Run, env: Environment, policy: object, start: Prompt, config: Config) -> Candidate:
    """Gradient descent on keys and values; see the module. `policy` is not used."""
    return await train_soft_prompt(run, env, start, "prefix", config)


def deploy(env: Environment, policy: object, blob: bytes, config: Config) -> Environment:
    """The frozen model with a trained prefix in front of every text. Raises UsageError when the blob does not fit."""
    return deploy_soft_prompt(env, "prefix", blob, config)
