"""P-tuning: prompt tuning whose virtual tokens, in front of a frozen model's input, are computed by a small trained network.

Liu, Zheng, Du, Ding, Qian, Yang, Tang: GPT Understands, Too. 2021. arXiv:2103.10385. Section 3.

    h_1..h_n <- MLP(e_1..e_n)                 embeddings of n virtual tokens
    repeat: draw a batch of examples
            loss <- - mean log p(answer | h, prompt, input)      the model's own weights are frozen
            Adam step on the MLP and e
    drop the MLP, keep h

The result is no text: nobody can read it, and it acts with this very model only. It is here to show what a readable
prompt gives up, and what it keeps (docs/methods/ptuning.md).

Differences from the paper:
1. The virtual tokens stand before the whole prompt, whose text stays, and not between its parts: this is the prompt tuning of
   Lester, Al-Rfou, Constant (2021, arXiv:2104.08691) with the reparameterisation of P-tuning.
2. The network is an MLP (PEFT's default), where the paper has an LSTM followed by one.
3. The state of the weights is chosen on validation examples, among some checks on the way and the start itself.
4. Within a limit on calls, steps are cut; an example that is learned from is charged as one task call.

Run it:  whet optimize TASK --method ptuning --lm hf/PATH
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
    "ptuning",
    "P-tuning: prompt tuning with reparameterised embeddings, not a text",
    version=1,
    rank=280,
    when="you want to know how much reward a readable prompt gives up, compared with trained embeddings",
    paper="Liu et al., 2021",
    arxiv="2103.10385",
    needs=("local",),
    trains="virtual tokens in front of a frozen model",
    extra="train",
    bound="its vectors belong to one model's weights",
)


@named_fields
@dataclass(frozen=True)
class Config(SoftPromptConfig):
    """Settings of p-tuning."""


async def ptuning(run: Run, env: Environment, policy: object, start: Prompt, config: Config) -> Candidate:
    """Gradient descent on embeddings of virtual tokens; see the module. `policy` is not used."""
    return await train_soft_prompt(run, env, start, "ptuning", config)


def deploy(env: Environment, policy: object, blob: bytes, config: Config) -> Environment:
    """The frozen model with trained virtual tokens in front. Raises UsageError when the blob does not fit."""
    return deploy_soft_prompt(env, "ptuning", blob, config)
