"""Writing and reading: seeds, batches, stops, nuclei, conversations, against direct arithmetic with transformers."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="writers need torch: pip install 'whet[train]'")
transformers = pytest.importorskip(
    "transformers", reason="writers need transformers: pip install 'whet[train]'"
)
pytest.importorskip("peft", reason="writers need peft: pip install 'whet[train]'")

from tests.rl.reading import token_scores  # noqa: E402 - after the checks for extras
from tests.rl.tiny_llama import EOS, WORDS, save  # noqa: E402 - after the checks for extras

from whet.errors import UsageError  # noqa: E402
from whet.rl.policy_model import LoraSettings, PolicyModel, Sample, Update  # noqa: E402
from whet.rl.policy_model.backbone import tokens_at_once  # noqa: E402
from whet.rl.policy_model.learning import Whose, _predictions  # noqa: E402
from whet.rl.policy_model.sampling import nucleus  # noqa: E402
from whet.types import Message  # noqa: E402

ASK = [Message("user", "write in capitals the words a b c")]
SAY = [Message("system", "short"), Message("user", "say it twice")]
Open = Callable[..., PolicyModel]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def opened(folder: Path) -> PolicyModel:
    """A writer for tests that do not train it; its adapters are not at their neutral start."""
    writer = PolicyModel.open(f"hf/{folder}", LoraSettings(rank=4), seed=1)
    writer.imitate([(ASK, "a b c d")], Update(lr=0.05))
    return writer


def spread(groups: list[list[Sample]]) -> list[Sample]:
    return [sample for group in groups for sample in group]


def test_the_same_seed_writes_the_same_and_another_one_does_not(opened: PolicyModel) -> None:
    first = opened.sample([ASK], 3, max_tokens=8, seed=1)
    assert first == opened.sample([ASK], 3, max_tokens=8, seed=1)
    assert first != opened.sample([ASK], 3, max_tokens=8, seed=2)
    assert len({sample.tokens for sample in first[0]}) == 3


def test_a_text_does_not_depend_on_its_batch(opened: PolicyModel) -> None:
    together = opened.sample([ASK, SAY], 4, max_tokens=10, seed=5)
    alone = opened.sample([SAY], 4, max_tokens=10, seed=5)
    assert [s.tokens for s in together[1]] == [s.tokens for s in alone[0]]
    for a, b in zip(together[1], alone[0], strict=True):
        assert a.logprobs == pytest.approx(b.logprobs, abs=1e-5)
    small = PolicyModel(opened.body, seed=0, batch_tokens=12)
    assert [s.tokens for s in spread(small.sample([ASK, SAY], 4, max_tokens=10, seed=5))] == [
        s.tokens for s in spread(together)
    ]


def test_the_same_conversation_given_twice_gets_different_texts(opened: PolicyModel) -> None:
    twice = opened.sample([ASK, ASK], 2, max_tokens=8, seed=1)
    assert spread(twice) == spread(opened.sample([ASK], 4, max_tokens=8, seed=1))


def test_recorded_log_probabilities_are_those_of_one_forward_pass(opened: PolicyModel) -> None:
    samples = spread(opened.sample([ASK, SAY], 3, temperature=0.7, max_tokens=9, seed=3))
    assert {sample.temperature for sample in samples} == {0.7}
    logprobs, own, entropies = token_scores(opened, samples)
    assert logprobs.shape == own.shape == entropies.shape == (6, max(len(s.tokens) for s in samples))
    for i, sample in enumerate(samples):
        n = len(sample.tokens)
        assert logprobs[i, :n].tolist() == pytest.approx(sample.logprobs, abs=2e-5)
        assert own[i].tolist() == [1.0] * n + [0.0] * (own.shape[1] - n)


def test_reading_against_bare_transformers(opened: PolicyModel) -> None:
    samples = spread(opened.sample([ASK, SAY], 2, max_tokens=6, seed=3))
    logprobs, _, entropies = token_scores(opened, [dataclasses.replace(s, temperature=2.0) for s in samples])
    for i, sample in enumerate(samples):
        ids = torch.tensor([[*sample.prompt, *sample.tokens]])
        with torch.no_grad():
            logits = opened.body.model(ids).logits[0, len(sample.prompt) - 1 : -1] / 2.0
        bare = logits.log_softmax(-1)
        n = len(sample.tokens)
        assert logprobs[i, :n].tolist() == pytest.approx(
            bare[torch.arange(n), torch.tensor(sample.tokens)].tolist(), abs=1e-5
        )
        exact = -(bare.exp() * bare).sum(-1)
        assert entropies[i, :n].tolist() == pytest.approx(exact.tolist(), abs=1e-5)


def test_many_samples_are_read_in_parts(opened: PolicyModel) -> None:
    samples = spread(opened.sample([ASK, SAY], 4, max_tokens=7, seed=3))
    parted = PolicyModel(opened.body, seed=0, batch_tokens=45)
    for whole, parts in zip(opened._here.logprobs(samples), parted._here.logprobs(samples), strict=True):
        assert parts == pytest.approx(whole, abs=1e-5)


def test_greedy_is_what_transformers_generates(opened: PolicyModel) -> None:
    sample = opened.sample([ASK], temperature=0, max_tokens=7)[0][0]
    ids = torch.tensor([sample.prompt])
    with torch.no_grad():
        out = opened.body.model.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=7, do_sample=False
        )
    assert list(sample.tokens) == out[0, len(sample.prompt) :].tolist()
    assert sample.temperature == 1.0


def test_frequencies_are_those_of_the_distribution(opened: PolicyModel) -> None:
    n = 4000
    samples = opened.sample([ASK], n, temperature=0.8, max_tokens=1, seed=9)[0]
    counts = [0] * len(WORDS)
    for sample in samples:
        counts[sample.tokens[0]] += 1
    with torch.no_grad():
        ids = torch.tensor([samples[0].prompt])
        expected = (opened.body.model(ids).logits[0, -1] / 0.8).softmax(-1) * n
    chi_square = sum((c - e) ** 2 / e for c, e in zip(counts, expected.tolist(), strict=True))
    assert chi_square < 73  # the 99.9% quantile with 39 degrees of freedom


def test_texts_end_at_the_end_token_or_at_the_bound(opened: PolicyModel) -> None:
    samples = opened.sample([ASK], 60, temperature=1.5, max_tokens=20, seed=4)[0]
    ended = [s for s in samples if s.ended]
    assert ended and len(ended) < len(samples)
    for sample in samples:
        assert (EOS in sample.tokens) == sample.ended
        assert EOS not in sample.tokens[:-1]
        assert len(sample.tokens) == 20 or sample.ended
        assert sample.text == " ".join(WORDS[t] for t in sample.tokens if t > EOS)


def test_a_stop_sequence_ends_a_text_and_stays_in_it(opened: PolicyModel) -> None:
    free = opened.sample([ASK], 8, max_tokens=16, seed=2)[0]
    word = WORDS[next(t for s in free for t in s.tokens[3:] if t > EOS)]
    stopped = opened.sample([ASK], 8, max_tokens=16, seed=2, stop=[word])[0]
    assert any(s.text.endswith(word) and s.ended for s in stopped)
    for whole, cut in zip(free, stopped, strict=True):
        assert whole.tokens[: len(cut.tokens)] == cut.tokens
        assert word not in cut.text.split()[:-1]


def test_a_nucleus_keeps_the_likeliest_tokens_that_make_up_the_share() -> None:
    shares = torch.tensor([[0.5, 0.1, 0.3, 0.1]])
    assert nucleus(shares, 0.6)[0].tolist() == pytest.approx([0.5, 0, 0.3, 0])
    assert nucleus(shares, 0.5)[0].tolist() == pytest.approx([0.5, 0, 0, 0])
    assert nucleus(shares, 1.0) is shares


def test_a_small_nucleus_is_greedy_with_the_log_probabilities_of_the_whole(opened: PolicyModel) -> None:
    sample = opened.sample([ASK], top_p=1e-6, max_tokens=5, seed=1)[0][0]
    greedy = opened.sample([ASK], temperature=0, max_tokens=5)[0][0]
    assert sample.tokens == greedy.tokens
    assert sample.logprobs == pytest.approx(greedy.logprobs, abs=1e-6)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"temperature": -1.0}, "temperature"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"top_p": 0.0}, "top_p"),
    ],
)
def test_wrong_settings_of_sampling_are_refused(
    opened: PolicyModel, wrong: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        opened.sample([ASK], **wrong)


def test_a_sample_survives_json(opened: PolicyModel) -> None:
    for sample in spread(opened.sample([ASK, SAY], 2, temperature=0.5, max_tokens=5, seed=1)):
        assert Sample.from_json(json.loads(json.dumps(sample.to_json()))) == sample
    mixed = Sample("b", (1,), (2, 3), (-0.5, 0.0), (True, False), False, 0.3)
    assert Sample.from_json(json.loads(json.dumps(mixed.to_json()))) == mixed


def test_a_long_conversation_is_cut_in_the_middle(opened: PolicyModel) -> None:
    sample = opened.sample([[Message("user", "a " * 300)]], max_tokens=8)[0][0]
    assert len(sample.prompt) == 120


def test_a_conversation_goes_on_as_its_template_says(opened: PolicyModel) -> None:
    first = opened.sample([ASK, ASK, ASK], 4, max_tokens=6, seed=8, stop=["mark"])
    turns = spread(first)
    replies = [[Message("user", "end with mark")]] * len(turns)
    second = opened.sample_turn(turns, replies, max_tokens=4, seed=9)
    said = ["[", "user", "]", "end", "with", "mark", "</s>", "[", "assistant", "]"]
    for before, after in zip(turns, second, strict=True):
        own = list(after.own)
        start = own.index(False)
        assert after.tokens[:start] == before.tokens
        others = [WORDS[t] for t, mine in zip(after.tokens, own, strict=True) if not mine]
        assert others == ([] if before.tokens[-1] == EOS else ["</s>"]) + said
        assert after.text == opened.body.weights.tokenizer.decode(
            [t for t in after.tokens[start + len(others) :] if t > EOS]
        )
    logprobs, mask, _ = token_scores(opened, second)
    for i, sample in enumerate(second):
        n = len(sample.tokens)
        assert mask[i, :n].tolist() == [float(own) for own in sample.own]
        assert (logprobs[i, :n] * mask[i, :n]).tolist() == pytest.approx(list(sample.logprobs), abs=2e-5)


def test_a_conversation_that_leaves_no_room_is_refused(opened: PolicyModel) -> None:
    sample = opened.sample([ASK], max_tokens=6)[0][0]
    with pytest.raises(UsageError, match="no room for 8 more"):
        opened.sample_turn([sample], [[Message("user", "a " * 120)]], max_tokens=8)


def test_without_a_chat_template_messages_are_set_apart(tmp_path: Path) -> None:
    writer = PolicyModel.open(f"hf/{save(tmp_path, template=None)}")
    sample = writer.sample([ASK], max_tokens=4)[0][0]
    longer = writer.sample_turn([sample], [[Message("user", "b c")]], max_tokens=3)[0]
    others = [WORDS[t] for t, own in zip(longer.tokens, longer.own, strict=True) if not own]
    assert others == ["b", "c"]


def test_only_causal_models_in_this_process_can_be_opened(folder: Path) -> None:
    with pytest.raises(UsageError, match="no weights to train"):
        PolicyModel.open("openai/some-model")
    with pytest.raises(UsageError, match="no weights to train"):
        PolicyModel.open("embedded/mlm")
    with pytest.raises(UsageError, match="cannot be loaded"):
        PolicyModel.open(f"hf/{folder}/nothing")
    with pytest.raises(UsageError, match="rank"):
        PolicyModel.open(f"hf/{folder}", LoraSettings(rank=-1))


def test_the_seed_decides_the_first_weights_and_they_do_nothing_yet(folder: Path) -> None:
    one, same, other = (PolicyModel.open(f"hf/{folder}", LoraSettings(rank=2), seed=s) for s in (1, 1, 2))
    weights = [{n: w.detach() for n, w in writer.body.trainable.items()} for writer in (one, same, other)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert any(not torch.equal(weights[0][name], weights[2][name]) for name in weights[0])
    samples = one.sample([ASK], 2, max_tokens=5)[0]
    assert torch.equal(token_scores(one, samples)[0], token_scores(one, samples, reference=True)[0])


@pytest.mark.parametrize("whose", ["policy", "reference"])
def test_a_shared_prompt_is_read_once_with_the_same_result(opened: PolicyModel, whose: Whose) -> None:
    samples = (
        spread(opened.sample([ASK, SAY], 3, max_tokens=6, seed=3)) + opened.sample([ASK], max_tokens=1)[0]
    )
    calls: list[int] = []
    hook = opened.body.weights.model.register_forward_pre_hook(
        lambda module, args, given: calls.append(given["input_ids"].numel()), with_kwargs=True
    )
    together = _predictions(opened.body, samples, whose)
    hook.remove()
    prompts, longest = (len(opened.read(ASK)), len(opened.read(SAY))), max(len(s.tokens) for s in samples)
    assert calls == [2 * max(prompts), 7 * (longest - 1)]
    for i, sample in enumerate(samples):
        alone = _predictions(opened.body, [sample], whose)
        n = len(sample.tokens)
        assert torch.allclose(together[i, :n], alone[0], atol=1e-4)


def test_a_pass_holds_what_fits_the_memory(opened: PolicyModel) -> None:
    assert tokens_at_once(opened.body) == 32768 == PolicyModel(opened.body, 0)._here.batch_tokens
    config = opened.body.weights.model.config
    layers = config.num_hidden_layers
    try:
        config.num_hidden_layers = 500
        assert 1024 < tokens_at_once(opened.body) == 2**31 // (17 * 500 * 32 * 4) < 32768
        config.num_hidden_layers = 10**9
        assert tokens_at_once(opened.body) == 1024
    finally:
        config.num_hidden_layers = layers


def test_the_embedded_model_is_a_writer() -> None:
    writer = PolicyModel.open("embedded/tiny", seed=1)
    request = "Rewrite the following instruction by adding specific requirements."
    asked = [Message("user", f"{request}\n\nInstruction: write it in capital letters\n\nRewritten:")]
    group = writer.sample([asked], 4, max_tokens=48, seed=1)[0]
    assert len({sample.text for sample in group}) == 4 and any(sample.ended for sample in group)
    assert writer.update(group, [1.0, -1.0, 1.0, -1.0], Update())["grad_norm"] > 0


def test_a_given_text_ends_with_the_tokenizers_own_end(opened: PolicyModel) -> None:
    ends = opened.body.ends
    try:
        for several, last in (({1, EOS}, [EOS]), ({1, 2}, [1]), (set(), [WORDS.index("a")])):
            opened.body.ends = frozenset(several)
            assert list(opened.demonstrate(ASK, "b a").tokens[-1:]) == last
    finally:
        opened.body.ends = ends
