"""The table of methods. One published algorithm is one file of this folder; nothing here imports them early."""

from whet.errors import UsageError, did_you_mean
from whet.methods.base import (
    LABEL_SCORES,
    LOCAL,
    OPTIMIZER,
    OPTIMIZER_OPTIONAL,
    POLICY,
    Entry,
    Method,
    configure,
    load,
)

__all__ = [
    "LABEL_SCORES",
    "LOCAL",
    "METHODS",
    "OPTIMIZER",
    "OPTIMIZER_OPTIONAL",
    "POLICY",
    "Entry",
    "Method",
    "configure",
    "get_method",
]

METHODS: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry(
            "prompt_learning",
            "Prompt learning: critiques become managed instructions",
            "this tool's own; the idea: Arize AI, 2025",
            "-",
            needs=(OPTIMIZER_OPTIONAL,),
        ),
        Entry("random_search", "Random search: the control", "-", "-"),
        Entry(
            "rlprompt",
            "RLPrompt: soft Q-learning over prompt tokens",
            "Deng et al., EMNLP 2022",
            "2205.12548",
            needs=(LABEL_SCORES,),
            trains="an MLP on a frozen encoder",
            extra="embedded",
        ),
        Entry(
            "opro",
            "OPRO: a model reads the score history",
            "Yang et al., ICLR 2024",
            "2309.03409",
            needs=(OPTIMIZER,),
        ),
        Entry(
            "protegi",
            "ProTeGi: textual gradients and a beam",
            "Pryzant et al., EMNLP 2023",
            "2305.03495",
            needs=(OPTIMIZER,),
        ),
        Entry(
            "grips",
            "GrIPS: phrase edits without a model",
            "Prasad et al., EACL 2023",
            "2203.07281",
            needs=(OPTIMIZER_OPTIONAL,),
        ),
    )
}


def get_method(name: str) -> Method:
    """The method of that name, loaded. Raises UsageError with the nearest known name."""
    if name not in METHODS:
        raise UsageError(f'There is no method "{name}".{did_you_mean(name, METHODS)}')
    return load(METHODS[name])
