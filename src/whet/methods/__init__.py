"""The table of methods. One published algorithm is one file of this folder; nothing here imports them early."""

from whet import plugins
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
    load_plugin,
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
    "method_table",
]

METHODS: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry(
            "prompt_learning",
            "Prompt learning: critiques become managed instructions",
            "this tool's own; the idea: Arize AI, 2025",
            "-",
            needs=(OPTIMIZER,),
        ),
        Entry(
            "meta_prompt",
            "One-call rewrite: all critiques of a batch, the whole text anew",
            "the way of Arize AI's SDK, 2025",
            "-",
            needs=(OPTIMIZER,),
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
        Entry(
            "prewrite",
            "PRewrite: a trained rewriter of the instruction",
            "Kong et al., ACL 2024",
            "2401.08189",
            needs=(POLICY,),
            trains="a language model that rewrites the prompt (LoRA)",
            extra="train",
        ),
        Entry(
            "prl",
            "PRL: a trained model reasons and writes the prompt",
            "Batorski et al., 2025",
            "2505.14412",
            needs=(POLICY,),
            trains="a language model that writes the prompt (LoRA)",
            extra="train",
        ),
        Entry(
            "dsp",
            "DSP: a trained hint for every input",
            "Li et al., NeurIPS 2023",
            "2302.11520",
            needs=(POLICY,),
            trains="a small language model that hints at every input (LoRA)",
            extra="train",
        ),
        Entry(
            "espl",
            "E-SPL: principle lists and weights, learned together",
            "E-SPL, 2026",
            "2602.14697",
            needs=(POLICY, OPTIMIZER_OPTIONAL),
            trains="the model that answers (LoRA), and principles in its prompt",
            extra="train",
            bound="its trained weights are what answers",
        ),
        Entry(
            "prompt_r1",
            "Prompt-R1: a small model consults a large frozen one",
            "2025",
            "2511.01016",
            needs=(POLICY,),
            trains="the small model (LoRA)",
            extra="train",
        ),
        Entry(
            "retroformer",
            "Retroformer: a model learns to write reflections",
            "Yao et al., ICLR 2024",
            "2308.02151",
            needs=(POLICY,),
            trains="the reflecting model (LoRA)",
            extra="train",
        ),
        Entry(
            "autoprompt",
            "AutoPrompt: gradients choose the words of the prompt",
            "Shin et al., EMNLP 2020",
            "2010.15980",
            needs=(LOCAL,),
        ),
        Entry(
            "prefix",
            "Prefix tuning: trained keys and values, not a text",
            "Li and Liang, ACL 2021",
            "2101.00190",
            needs=(LOCAL,),
            trains="virtual tokens in front of a frozen model",
            extra="train",
            bound="its vectors belong to one model's weights",
        ),
        Entry(
            "ptuning",
            "P-tuning: trained embeddings, not a text",
            "Liu et al., 2021",
            "2103.10385",
            needs=(LOCAL,),
            trains="virtual tokens in front of a frozen model",
            extra="train",
            bound="its vectors belong to one model's weights",
        ),
        Entry(
            "tempera",
            "TEMPERA: each input gets its own edits of the prompt",
            "Zhang et al., ICLR 2023",
            "2211.11890",
            needs=(LABEL_SCORES,),
            trains="a small actor-critic on frozen embeddings",
            extra="embedded",
        ),
    )
}


def get_method(name: str) -> Method:
    """The method of that name, loaded: built in, or of an installed package.

    Raises UsageError with the nearest known name, or naming the package whose method cannot be used.
    """
    if name in METHODS:
        return load(METHODS[name])
    plugin = plugins.find(plugins.METHODS, name, METHODS)
    if plugin is None:
        known = plugins.names(plugins.METHODS, METHODS)
        raise UsageError(f'There is no method "{name}".{did_you_mean(name, known)}')
    return load_plugin(plugin)


def method_table() -> tuple[list[tuple[Entry, str]], list[tuple[plugins.Plugin, str]]]:
    """Every method with the package that brings it, whet's own first; and the plugins that cannot be used, with why."""
    rows = [(entry, plugins.OWN) for entry in METHODS.values()]
    unusable = []
    for plugin in plugins.plugins(plugins.METHODS, METHODS):
        try:
            rows.append((load_plugin(plugin).entry, plugin.package))
        except UsageError as error:
            unusable.append((plugin, str(error)))
    return rows, unusable
