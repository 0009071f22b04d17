"""images/hf/PATH: a tiny pipeline of diffusers with random weights, saved and loaded, against diffusers itself."""

from __future__ import annotations

import io
import json
import string
from pathlib import Path
from typing import Any

import pytest

import whet
from whet.errors import ProviderError, UsageError
from whet.models.addresses import at_endpoint, resolve
from whet.types import Message, Request
from whet_client.media import content_bytes, marks_of

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
diffusers = pytest.importorskip("diffusers", reason="pip install 'whet[images]'")
Image = pytest.importorskip("PIL.Image", reason="pip install 'whet[images]'")

OPTIONS: dict[str, Any] = {
    "extra_body": {"num_inference_steps": 2, "height": 16, "width": 16},
    "device": "cpu",
}


@pytest.fixture(scope="module")
def painter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text-to-image pipeline that paints 16 x 16 pixels of noise, which depend on its text."""
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("painter")
    signs = string.ascii_lowercase
    words = [*signs, *(f"{sign}</w>" for sign in signs), "<|startoftext|>", "<|endoftext|>"]
    (folder / "vocab.json").write_text(json.dumps({word: number for number, word in enumerate(words)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    ends: dict[str, Any] = {
        "bos_token_id": len(words) - 2,
        "eos_token_id": len(words) - 1,
        "pad_token_id": len(words) - 1,
    }
    text = CLIPTextConfig(
        vocab_size=len(words),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=40,
        **ends,
    )
    unet = diffusers.UNet2DConditionModel(
        sample_size=8,
        block_out_channels=(8, 16),
        layers_per_block=1,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        norm_num_groups=4,
        cross_attention_dim=16,
        attention_head_dim=4,
    )
    autoencoder = diffusers.AutoencoderKL(
        block_out_channels=(8, 8),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        norm_num_groups=4,
        sample_size=16,
    )
    pipeline = diffusers.StableDiffusionPipeline(
        vae=autoencoder,
        text_encoder=CLIPTextModel(text),
        tokenizer=CLIPTokenizer.from_pretrained(folder, model_max_length=40),
        unet=unet,
        scheduler=diffusers.DDIMScheduler(clip_sample=False, set_alpha_to_one=False, steps_offset=1),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
    pipeline.save_pretrained(folder / "saved")
    return folder / "saved"


def request(text: str, n: int = 1, sample: int = 0) -> Request:
    return Request((Message("system", "paint"), Message("user", text)), n=n, sample=sample)


def pixels(mark: str) -> bytes:
    data = content_bytes(marks_of(mark)[0])
    assert data is not None
    with Image.open(io.BytesIO(data)) as image:
        assert (image.format, image.size) == ("PNG", (16, 16))
        return bytes(image.tobytes())


def distance(one: bytes, other: bytes) -> int:
    return max(abs(a - b) for a, b in zip(one, other, strict=True))


async def test_a_picture_is_that_of_its_request_whichever_share_its_batch(painter: Path) -> None:
    model: Any = resolve(f"images/hf/{painter}", options={**OPTIONS, "batch_size": 2})
    try:
        (boat, second), (tree,) = await model.generate_batch([request("a boat", n=2), request("a tree")])
        (alone,) = await model.generate(request("a tree"))
        (other,) = await model.generate(request("a tree", sample=1))
    finally:
        await model.close()
    assert distance(pixels(tree.text), pixels(alone.text)) <= 1
    assert len({pixels(one.text) for one in (boat, second, alone, other)}) == 4
    assert all(one.usage.pictures == 1 and one.error is None for one in (boat, second, tree))
    assert model.local and not at_endpoint(model.address)


async def test_the_text_reaches_the_pipeline_as_diffusers_itself_would_paint_it(
    painter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whet.models.diffusion._seed", lambda request, copy: 7)
    model = resolve(f"images/hf/{painter}", options=OPTIONS)
    (answer,) = await model.generate(request("a red boat"))
    await model.close()
    pipeline = diffusers.StableDiffusionPipeline.from_pretrained(painter)
    pipeline.set_progress_bar_config(disable=True)
    own = pipeline(
        "paint\n\na red boat", generator=torch.Generator().manual_seed(7), **OPTIONS["extra_body"]
    ).images[0]
    assert pixels(answer.text) == own.tobytes()


async def test_a_hidden_picture_is_a_failed_rollout_and_a_lack_of_memory_ends_the_run(
    painter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model: Any = resolve(f"images/hf/{painter}", options=OPTIONS)
    pipeline = diffusers.StableDiffusionPipeline

    def hide(self: Any, prompt: list[str], **_: Any) -> Any:
        images = [Image.new("RGB", (16, 16)) for _ in prompt]
        return diffusers.pipelines.stable_diffusion.StableDiffusionPipelineOutput(images, [True])

    monkeypatch.setattr(pipeline, "__call__", hide)
    (answer,) = await model.generate(request("a boat"))
    assert (answer.text, answer.error) == ("", "model: the safety checker hid the picture")

    def fail(self: Any, **_: Any) -> Any:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(pipeline, "__call__", fail)
    with pytest.raises(ProviderError, match="Lower the option batch_size") as refused:
        await model.generate(request("a boat"))
    await model.close()
    assert refused.value.fatal


@pytest.mark.parametrize(
    ("extra_body", "expected"),
    [
        (
            {"steps": 3},
            "StableDiffusionPipeline takes no steps. It takes: height, width, num_inference_steps",
        ),
        ({"output_type": "np"}, "output_type is set by whet"),
    ],
)
def test_parameters_are_checked_before_anything_is_painted(
    painter: Path, extra_body: dict[str, Any], expected: str
) -> None:
    with pytest.raises(UsageError, match=expected):
        resolve(f"images/hf/{painter}", options={"extra_body": extra_body})


def test_what_cannot_be_loaded_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no folder \./missing"):
        resolve("images/hf/./missing")
    with pytest.raises(UsageError, match="cannot be loaded on cpu"):
        resolve(f"images/hf/{tmp_path}", options={"device": "cpu"})
    with pytest.raises(UsageError, match="batch_size must be 1 or more"):
        resolve(f"images/hf/{tmp_path}", options={"batch_size": 0})
    with pytest.raises(UsageError, match=r"images/hf/PATH"):
        resolve("images/scripted/painter")


def test_a_run_keeps_the_pictures_and_tests_them(painter: Path, tmp_path: Path) -> None:
    """The reward opens the pictures; the run keeps them, as it does those of an endpoint."""
    rows = [{"input": f"a boat {sign}"} for sign in string.ascii_lowercase]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "prompt.md").write_text("<!-- whet:begin -->\npaint\n<!-- whet:end -->\n{{input}}")
    (tmp_path / "reward.py").write_text(
        "import io\nfrom PIL import Image\n"
        "def reward(example, output, pictures):\n"
        "    if not pictures:\n"
        "        return 0.0\n"
        "    with Image.open(io.BytesIO(pictures[0])) as image:\n"
        "        return image.resize((1, 1)).getpixel((0, 0))[0] / 255\n"
    )
    models = {"task": {"address": f"images/hf/{painter}", "extra_body": OPTIONS["extra_body"]}}
    task = {"name": "t", "prompt": "prompt.md", "data": "rows.jsonl", "reward": "reward.py", "models": models}
    (tmp_path / "task.yaml").write_text(json.dumps(task))
    means: list[float] = []
    for workers in (None, 2):
        run = tmp_path / f"run-{workers}"
        result = whet.evaluate(tmp_path, split="train", run=run, progress=False, workers=workers)
        assert 0 < result.score.mean < 1
        assert len(list((run / "images").iterdir())) > 1
        means.append(result.score.mean)
    assert means[0] == means[1]
