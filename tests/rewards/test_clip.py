"""The reward of a CLIP model, with one of random weights: what it makes of pictures and texts, and what it refuses."""

from __future__ import annotations

import io
import json
import string
from pathlib import Path

import pytest

from whet.errors import UsageError
from whet.rewards import RewardFailed, build_reward
from whet.run import MemoryRun
from whet.types import Completion, Example, Reward
from whet_client.media import keep_content

pytest.importorskip("torch")
pytest.importorskip("transformers")
Image = pytest.importorskip("PIL.Image", reason="pip install pillow")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch
    from transformers import CLIPConfig, CLIPModel, CLIPProcessor, CLIPTokenizer
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("clip")
    signs = string.ascii_lowercase
    words = [*signs, *(f"{sign}</w>" for sign in signs), "<|startoftext|>", "<|endoftext|>"]
    (folder / "vocab.json").write_text(json.dumps({word: number for number, word in enumerate(words)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    tokenizer = CLIPTokenizer.from_pretrained(folder, model_max_length=20)
    small = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    ends = {"bos_token_id": len(words) - 2, "eos_token_id": len(words) - 1, "pad_token_id": len(words) - 1}
    config = CLIPConfig(
        text_config={**small, **ends, "vocab_size": len(words), "max_position_embeddings": 20},
        vision_config={**small, "image_size": 16, "patch_size": 8},
        projection_dim=8,
    )
    CLIPModel(config).save_pretrained(folder)
    pictures = CLIPImageProcessorPil(size={"shortest_edge": 16}, crop_size={"height": 16, "width": 16})
    CLIPProcessor(pictures, tokenizer).save_pretrained(folder)
    return folder


def painted(colour: str) -> str:
    """The mark of a picture of one colour."""
    data = io.BytesIO()
    Image.new("RGB", (20, 20), colour).save(data, "PNG")
    mark = keep_content(data.getvalue())
    assert mark is not None
    return mark


async def grade(model: Path, answer: str, text: str = "a red square", column: str = "") -> Reward:
    reward = build_reward({"clip": {"model": str(model), "text": column}}, Path(), "task.yaml:1")
    example = Example("1", {"input": text}, row={"input": text, "wanted": "a red square"})
    return await reward.grade(MemoryRun(), example, Completion(answer))


async def test_a_reward_is_the_scaled_cosine_of_picture_and_text(model: Path) -> None:
    grades = [await grade(model, painted(colour)) for colour in ("red", "blue")]
    for one in grades:
        assert one.value == min(1.0, 2.5 * max(0.0, one.parts["cosine"]))
    assert grades[0].parts != grades[1].parts
    assert (await grade(model, painted("red"), "other words", column="wanted")).parts == grades[0].parts


async def test_an_answer_without_a_picture_fails(model: Path) -> None:
    with pytest.raises(RewardFailed, match="no picture"):
        await grade(model, "<svg></svg>")


def test_what_cannot_be_used_is_refused_with_the_place() -> None:
    with pytest.raises(
        UsageError, match=r"task\.yaml:1: the reward clip: write reward: {clip: {model: PATH}}"
    ):
        build_reward("clip", Path(), "task.yaml:1")
