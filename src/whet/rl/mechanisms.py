"""Published ideas that are no method of their own: which setting, reward or environment each of them is, by its name.

`whet methods NAME` shows them beside the methods. The equation is the one in the docstring of the code.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
_PREWRITE, _ESPL, _DPO = "--method prewrite --set ", "--method espl --set ", "--method dpo --set "


@dataclass(frozen=True)
class Mechanism:
    """An idea by its names, and where it is."""

    names: tuple[str, ...]
    """The names that papers use. The first name is shown."""
    use: str
    """Options of `whet optimize`, another command, lines of task.yaml, or Python."""
    code: str
    """MODULE:OBJECT with the equation in its docstring."""
    page: str
    """The part of the documentation."""

    def summary(self) -> str:
        """The beginning of the docstring of the code, up to and with its first equation, read from the source."""
        module, _, path = self.code.partition(":")
        file = PACKAGE.joinpath(*module.split(".")[1:]).with_suffix(".py")
        node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef = ast.parse(
            file.read_text(encoding="utf-8")
        )
        for name in filter(None, path.split(".")):
            (node,) = (
                inner
                for inner in node.body
                if isinstance(inner, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
                and inner.name == name
            )
        paragraphs = (ast.get_docstring(node) or "").split("\n\n")
        indented = (at for at, text in enumerate(paragraphs) if text.startswith(" "))
        return "\n\n".join(paragraphs[: next(indented, 0) + 1])


def _advantage(*names: str, code: str = "") -> Mechanism:
    return Mechanism(
        names,
        f"{_PREWRITE}advantage={names[0]}",
        f"whet.rl.advantages:{code or names[0]}",
        "docs/mechanics.md#advantages",
    )


def _loss(*names: str, use: str = "", code: str = "", part: str = "losses-of-sampled-texts") -> Mechanism:
    return Mechanism(
        names,
        use or f"{_PREWRITE}loss={names[0]}",
        f"whet.rl.losses:{code or names[0]}",
        f"docs/mechanics.md#{part}",
    )


def _rows(*names: str, choice: str, code: str) -> Mechanism:
    use = f"--method dsp --set rows={choice}"
    return Mechanism(
        names, use, f"whet.rl.row_selection:{code}", "docs/training.md#which-rows-are-asked-about"
    )


def _reward(*names: str, use: str, code: str, page: str) -> Mechanism:
    return Mechanism(names, f"reward: {use}", f"whet.rewards.{code}", f"docs/{page}")


_PAIRS, _KL = "pairs-and-thumbs", "the-divergence-from-the-reference"
_SHAPING = "environment: {gymnasium: FrozenLake-v1, turns: 20, episodes: 90, shaping: "


def _method(*names: str, method: str) -> Mechanism:
    """A method of whet that papers call otherwise."""
    return Mechanism(names, f"--method {method}", f"whet.methods.{method}:", f"docs/methods/{method}.md")


MECHANISMS: tuple[Mechanism, ...] = (
    _method("apo", "automatic-prompt-optimization", method="protegi"),
    _method("introspective-tips", method="tips"),
    Mechanism(
        ("reflexion",),
        "--method retroformer --set lr=0",
        "whet.methods.retroformer:",
        "docs/methods/retroformer.md",
    ),
    Mechanism(
        ("pace", "actor-critic-editing"),
        "--method textgrad --set revert=false --set criticise=all",
        "whet.methods.textgrad:",
        "docs/methods/textgrad.md",
    ),
    Mechanism(
        ("plhf",),
        "whet align TASK --out judge",
        "whet.methods.memalign:",
        "docs/judges.md#align-a-judge-with-people",
    ),
    Mechanism(
        ("contextual-calibration", "calibrate-before-use"),
        "--method reanchor --set fit=content-free",
        "whet.search.label_weights:contextual_weights",
        "docs/methods/reanchor.md",
    ),
    Mechanism(
        ("nlpo", "rl4lms", "action-mask"),
        "--method dsp --set nlpo=0.9 --set top_p=1",
        "whet.rl.policy_model.sampling:mask_logits",
        "docs/mechanics.md#the-mask-of-nlpo",
    ),
    _method("activation-addition", "steering-vectors", method="actadd"),
    _method("directional-stimulus-prompting", method="dsp"),
    _method("langgpt", method="minstrel"),
    _method("pmpo-a", method="pmpo"),
    _method("tsgd-m", method="tsgd"),
    _method("miprov2", method="mipro"),
    _method("prompt-oirl", method="oirl"),
    _advantage("grpo"),
    _advantage("dr_grpo"),
    _advantage("rloo"),
    _advantage("reinforce++", code="reinforce_pp"),
    _advantage("reinforce++-baseline", code="reinforce_pp_baseline"),
    _advantage("remax"),
    _advantage("gae", "critic"),
    _loss("ppo", use=f"{_PREWRITE}advantage=gae --set loss=ppo"),
    _loss("clip-higher", "dapo", use=f"{_PREWRITE}clip_high=0.28", code="ppo"),
    _loss("cispo"),
    _loss("gspo", use=f"{_PREWRITE}loss=gspo --set aggregation=sequence"),
    _loss("importance"),
    _loss("reinforce"),
    _loss("rebel", use=f"{_PREWRITE}loss=rebel --set eta=2"),
    _loss("dro", use=f"{_PREWRITE}loss=dro --set kl=0.1"),
    _loss("kl", "k2", "k3", use=f"{_PREWRITE}kl=0.02 --set kl_estimator=k2", part=_KL),
    _loss("kl-in-reward", "k1", use=f"{_PREWRITE}kl=0.02 --set kl_in=reward", code="kl", part=_KL),
    _loss(
        "critical-tokens",
        "critical-token-kl",
        use=f"{_PREWRITE}kl=0.02 --set kl_power=2",
        code="critical_weights",
        part=_KL,
    ),
    _loss(
        "partial-kl",
        use=f"{_PREWRITE}kl=0.02 --set kl_tag=code",
        code="partial_weights",
        part=_KL,
    ),
    _loss("dpo-loss", use=f"{_DPO}loss=dpo", code="dpo", part=_PAIRS),
    _loss("ipo-loss", "identity-preference-optimisation", use=f"{_DPO}loss=ipo", code="ipo", part=_PAIRS),
    _loss("kto", use=f"{_DPO}loss=kto", part=_PAIRS),
    _loss("pmpo_b", use=f"{_DPO}loss=pmpo", code="pmpo", part=_PAIRS),
    Mechanism(
        ("kto-prompts", "kto-value"),
        "await whet.rl.logged_answers.value_prompts(model, first, prompts, rows)",
        "whet.rl.logged_answers:",
        "docs/preferences.md#prompts-that-were-never-used",
    ),
    Mechanism(
        ("minimaximalist-spo", "minimax-winner"),
        "--method online_dpo --set learn=win_rate",
        "whet.methods.online_dpo:",
        "docs/methods/online_dpo.md",
    ),
    Mechanism(
        ("best-of-n", "rejection-sampling"),
        "--method prewrite --set steps=0",
        "whet.methods.prewrite:",
        "docs/methods/prewrite.md",
    ),
    Mechanism(
        ("soft-q-learning", "path-consistency"),
        "--method rlprompt",
        "whet.rl.token_policy:path_consistency",
        "docs/methods/rlprompt.md",
    ),
    Mechanism(
        ("coma", "counterfactual-credit"),
        "--method mmgrpo --set baseline=held",
        "whet.rl.call_groups:",
        "docs/methods/mmgrpo.md",
    ),
    Mechanism(
        ("rto",),
        f"{_PREWRITE}advantage=gae --set rto=0.05",
        "whet.rl.advantages:token_rewards_rto",
        "docs/mechanics.md#credit-of-tokens",
    ),
    Mechanism(
        ("red", "dense-reward"),
        f"{_PREWRITE}advantage=gae --set trace=1",
        "whet.rl.advantages:redistribute",
        "docs/mechanics.md#credit-of-tokens",
    ),
    Mechanism(
        ("turn-credit",),
        f"{_ESPL}credit=turn",
        "whet.rl.advantages:turn_advantages",
        "docs/training.md#credit-in-conversations",
    ),
    _rows("dynamic-sampling", choice="dynamic", code="DynamicSampling"),
    _rows("mopps", choice="mopps", code="MoPPS"),
    _rows("pcl", "prompt-curriculum-learning", choice="pcl", code="PCL"),
    _rows("easy-first", "curriculum", choice="easy-first", code="EasyFirst"),
    Mechanism(
        ("erpo",),
        "--method dsp --set rows=erpo --set zero_variance=erpo",
        "whet.rl.zero_variance:with_pseudo_negative",
        "docs/training.md#what-a-group-of-equal-rewards-teaches",
    ),
    Mechanism(
        ("rl-zvp", "zvp"),
        f"{_PREWRITE}zero_variance=zvp",
        "whet.rl.zero_variance:zvp",
        "docs/training.md#what-a-group-of-equal-rewards-teaches",
    ),
    Mechanism(
        ("guide-grpo",),
        f"{_ESPL}hint=COLUMN",
        "whet.rl.guidance:shaping_weights",
        "docs/training.md#hints-where-everything-fails",
    ),
    Mechanism(
        ("eager",),
        _SHAPING + "{questions: goal}}",
        "whet.environments.turn_bonuses:GoalQuestions",
        "docs/shaping.md#questions-about-the-goal-eager",
    ),
    Mechanism(
        ("guide",),
        _SHAPING + "{human: feedback.jsonl}}",
        "whet.environments.turn_bonuses:HumanSignal",
        "docs/shaping.md#a-person-who-watches-guide",
    ),
    Mechanism(
        ("potential-based-shaping",),
        _SHAPING + "{potential: potential.py}}",
        "whet.environments.shaping:Potential",
        "docs/shaping.md#when-the-optimum-stays",
    ),
    Mechanism(
        ("self-play", "spo-minimax"),
        "--method online_dpo --set learn=win_rate --set group=4",
        "whet.methods.online_dpo:",
        "docs/methods/online_dpo.md",
    ),
    Mechanism(
        ("r3", "direct-reasoning-optimization", "self-certainty", "reasoning-reflective-tokens"),
        "--method direct_reasoning --set group=8",
        "whet.rl.reasoning_reward:r3",
        "docs/methods/direct_reasoning.md",
    ),
    Mechanism(
        ("dynamic-cheatsheet",),
        "--method ace --set online=true --set merge=rewrite",
        "whet.methods.ace:",
        "docs/methods/ace.md",
    ),
    Mechanism(
        ("matts",),
        "--method reasoning_bank --set scaling=parallel",
        "whet.methods.reasoning_bank:",
        "docs/methods/reasoning_bank.md",
    ),
    Mechanism(
        ("tapruning",),
        "--method promptquine --set algorithm=tap",
        "whet.methods.promptquine:",
        "docs/methods/promptquine.md",
    ),
    Mechanism(
        ("promptist",),
        "--method reprompt --set reason=false --set warmup=20",
        "whet.methods.reprompt:",
        "docs/methods/reprompt.md",
    ),
    Mechanism(("combee",), "--method gepa --set grouped=true", "whet.methods.gepa:", "docs/methods/gepa.md"),
    Mechanism(
        ("dvd",),
        "--method evoprompt --set diversity=bandit",
        "whet.search.diversity:",
        "docs/methods/evoprompt.md",
    ),
    Mechanism(
        ("rest", "rest-em"),
        "--method expert_iteration --set restart=true",
        "whet.methods.expert_iteration:",
        "docs/methods/expert_iteration.md",
    ),
    Mechanism(
        ("adaptive-kl",),
        "--method dsp --set kl=0.1 --set target_kl=0.5",
        "whet.methods.dsp:adapt_weight",
        "docs/methods/dsp.md",
    ),
    Mechanism(
        ("trueskill", "lucb"),
        f"{_ESPL}mode=evolution",
        "whet.rl.principles:select_programs",
        "docs/methods/espl.md",
    ),
    Mechanism(
        ("latin-square",),
        "--method cantante --set credit=latin",
        "whet.search.latin:",
        "docs/methods/cantante.md",
    ),
    Mechanism(
        ("parallel-proposals",),
        "--method gepa --set proposals=4",
        "whet.methods.gepa:",
        "docs/methods/gepa.md",
    ),
    Mechanism(
        ("hotflip",),
        "--method autoprompt --set k=20",
        "whet.models.gradients:",
        "docs/methods/autoprompt.md",
    ),
    Mechanism(
        ("successive-halving",),
        "--method protegi --set bandit=successive_halving",
        "whet.search.bandits:successive_halving",
        "docs/methods/protegi.md",
    ),
    Mechanism(
        ("information-gain", "bald", "active-preference"),
        "whet learn preferences prompt.md --from pairs.csv --ask 10 --answers answers.jsonl",
        "whet.rewards.preference.judged:information_gain",
        "docs/preferences.md#what-to-ask-next",
    ),
    Mechanism(
        ("over-optimisation-alarm", "reward-hacking-alarm"),
        f"{_PREWRITE}alarm=stop",
        "whet.search.over_optimisation:over_optimisation",
        "docs/training.md#a-step",
    ),
    Mechanism(
        ("headroom", "coin-flip"),
        "whet advise TASK --pilot",
        "whet.api.pilot:headroom",
        "docs/compare.md#does-it-pay",
    ),
    _reward("piecewise-gap", "gap", use="gap", code="scored:Gap", page="task-folder.md#rewards"),
    _reward(
        "confidence-adapter",
        use="{confidence: {least: 0.3, sure: 0.5}}",
        code="scored:Confidence",
        page="task-folder.md#confidence",
    ),
    _reward(
        "zyn", use='{yes_no: {question: "Is the answer polite?"}}', code="yes_no:YesNo", page="judges.md"
    ),
    _reward(
        "rlcf", use="{checklist: {per_row: true}}", code="checklist:Checklist", page="judges.md#checklist"
    ),
    _reward(
        "rewardanything",
        use="{listwise: {principles: principles.md}}",
        code="listwise:Listwise",
        page="judges.md#listwise",
    ),
    _reward(
        "toolrl",
        use="{tool_calls: {measure: parts}}",
        code="verifiers.tool_calls:ToolCalls",
        page="verifiers.md",
    ),
    _reward(
        "rltr",
        use="{tool_calls: {measure: complete}}",
        code="verifiers.tool_calls:ToolCalls",
        page="verifiers.md",
    ),
    _reward(
        "proof2silicon",
        use="{verilog: {synthesis: true}}",
        code="verifiers.verilog:Verilog",
        page="verifiers.md",
    ),
    _reward("sirl", use="{solver: {measure: sirl}}", code="verifiers.solver:Solver", page="verifiers.md"),
    _reward(
        "conciser",
        use="{concise: {reward: math_equal}}",
        code="concise:Concise",
        page="verifiers.md#with-a-judge-and-with-length",
    ),
    _reward(
        "bradley-terry",
        use="{preference: {model: taste.safetensors}}",
        code="preference.model:Preference",
        page="reward-models.md",
    ),
)


def name_key(name: str) -> str:
    """A name without letter case and without the marks that papers write or leave out; `+` tells REINFORCE++ apart."""
    return re.sub(r"[^a-z0-9+]", "", name.casefold())


def mechanism_names() -> list[str]:
    """The first name of each, in the order of the alphabet."""
    return sorted(one.names[0] for one in MECHANISMS)


def find_mechanism(name: str) -> Mechanism | None:
    """The mechanism of that name; None where there is none."""
    return next((one for one in MECHANISMS if name_key(name) in map(name_key, one.names)), None)
