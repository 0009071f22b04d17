"""``embedded/encoder``: classification by similarity of meaning.

The input is the premise. The hypothesis of a label is the prompt with every input slot empty and the
label's word at ``{{mask}}``, without the lines that define other labels (``word: ...``). Both are
embedded (mean of the last hidden states, normalised; Reimers and Gurevych 2019, arXiv:1908.10084), and
the log-probability of a label is the log-softmax of cosine / 0.05 over the given labels. Vectors are
remembered, so a new prompt costs at most one short sequence for each label, on however many examples it is
scored. This is not a language model: the numbers rank the labels and mean nothing else.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from threading import Lock

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from whet.models.embedded.bert import Encoder, batches, fast_dtype, pad
from whet.models.embedded.gradients import GradientWords
from whet.models.embedded.local import MASK_SLOT, Continuations, EmbeddedModel
from whet.models.embedded.weights import base_weights
from whet.models.gradients import Gradient, MarkedPrompt, Wanted, by_word
from whet.prompt import Prompt
from whet_client.prompt.slots import SLOT, fill

TEMPERATURE = 0.05  # of the softmax over cosines; the inverse of the scale the encoder was trained with, 20
LONGEST = 256  # tokens of a premise or hypothesis, as in the encoder's training
REMEMBERED = 20_000  # premises and hypotheses: 1.5 kB each


class VectorMemo:
    """Keeps the vectors of the ``size`` texts used last; safe to share between threads."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._kept: OrderedDict[str, Tensor] = OrderedDict()
        self._lock = Lock()

    def get(self, texts: Sequence[str], make: Callable[[list[str]], Tensor]) -> Tensor:
        """Vectors of ``texts`` (len(texts), width); ``make`` is called with the unknown ones."""
        with self._lock:
            known = {text: self._kept[text] for text in texts if text in self._kept}
        missing = [text for text in dict.fromkeys(texts) if text not in known]
        if missing:
            known.update(zip(missing, make(missing), strict=True))
        with self._lock:
            for text in known:
                self._kept[text] = known[text]
                self._kept.move_to_end(text)
            while len(self._kept) > self.size:
                self._kept.popitem(last=False)
        return torch.stack([known[text] for text in texts])


class EncoderModel(EmbeddedModel):
    """The encoder as a classifier. `dtype`: arithmetic type; by default bfloat16 where the processor is fast at it, float32
    elsewhere. `batch_tokens`: padded tokens computed at once."""

    def __init__(self, dtype: torch.dtype | None = None, batch_tokens: int = 2048) -> None:
        super().__init__("encoder")
        self.encoder = Encoder(base_weights(), dtype or fast_dtype())
        self.batch_tokens = batch_tokens
        self.ends = [self.tokenizer.token_to_id(name) for name in ("[CLS]", "[SEP]")]
        self.memo = VectorMemo(REMEMBERED)

    def embed(self, texts: Sequence[str]) -> Tensor:
        """Unit vectors of the texts, float32 (len(texts), 384); a text over 256 tokens is cut at its end."""
        first, last = self.ends
        sequences = [[first, *ids[: LONGEST - 2], last] for ids in self.encode(texts)]
        vectors = torch.empty(len(texts), self.encoder.words.shape[1])
        with torch.inference_mode():
            for rows in batches(sequences, self.batch_tokens):
                ids, mask = pad([sequences[row] for row in rows])
                hidden = self.encoder(ids, mask).float() * mask[..., None]
                vectors[rows] = F.normalize(hidden.sum(1) / mask.sum(1, keepdim=True), dim=1)
        return vectors

    def word_gradients(self) -> EncoderGradients:
        """The gradients of this model's loss with respect to the words of a prompt (autoprompt)."""
        return EncoderGradients(self)

    def compute(
        self, prompts: Sequence[Prompt], inputs: Sequence[Mapping[str, str]], continuations: Continuations
    ) -> NDArray[np.float64]:
        """Log-probabilities of the labels, float64 (P, E, L), normalised over each input's labels."""
        premises = self.memo.get(["\n".join(values.values()) for values in inputs], self.embed)
        choices = continuations.distinct
        vectors = self.memo.get(
            [hypothesis(prompt, word, choices) for prompt in prompts for word in choices], self.embed
        )
        with torch.inference_mode():
            cosines = (
                (premises @ vectors.T)
                .view(len(inputs), len(prompts), len(continuations.distinct))
                .transpose(0, 1)
            )
            index = torch.from_numpy(continuations.index).expand(len(prompts), -1, -1)
            logprobs = cosines.gather(-1, index).double().div(TEMPERATURE).log_softmax(-1)
        result: NDArray[np.float64] = logprobs.numpy()
        return result

    def compute_pairs(
        self, prompts: Sequence[Prompt], inputs: Sequence[Mapping[str, str]], continuations: Continuations
    ) -> NDArray[np.float64]:
        """Log-probabilities float64 (N, L) of each input's labels under its own prompt."""
        premises = self.memo.get(["\n".join(values.values()) for values in inputs], self.embed)
        texts = [
            hypothesis(prompt, continuations.distinct[at], continuations.distinct)
            for prompt, row in zip(prompts, continuations.index, strict=True)
            for at in row
        ]
        vectors = self.memo.get(texts, self.embed).view(*continuations.index.shape, -1)
        with torch.inference_mode():
            logprobs = (vectors @ premises[..., None])[..., 0].double().div(TEMPERATURE).log_softmax(-1)
        result: NDArray[np.float64] = logprobs.numpy()
        return result


def hypothesis(prompt: Prompt, word: str, choices: Sequence[str]) -> str:
    """The prompt completed by a label's word: input slots empty, white space collapsed.

    Without a ``{{mask}}`` slot the word follows the prompt. A line without a slot that begins with another word of `choices`
    and a colon defines that one and is left out.
    """
    others = tuple(f"{choice.strip()}:" for choice in choices if choice != word)
    lines = prompt.render_text({}).splitlines()
    text = "\n".join(line for line in lines if SLOT.search(line) or not line.lstrip().startswith(others))
    text = fill(text, {MASK_SLOT: word})
    if MASK_SLOT not in prompt.slots:
        text = f"{text} {word}"
    return re.sub(r"\s+", " ", SLOT.sub("", text)).strip()


class EncoderGradients(GradientWords):
    """See `whet.models.gradients.WordGradients`; the loss is that of the right label among the labels."""

    def __init__(self, model: EncoderModel) -> None:
        super().__init__(model, model.encoder)
        self._model = model

    def gradient(self, placed: MarkedPrompt, rows: Sequence[Wanted]) -> Gradient:
        """See `WordGradients.gradient`. All rows have the same choices: the labels' words."""
        model, (first, last) = self._model, self._model.ends
        premises = model.memo.get(["\n".join(row.values.values()) for row in rows], model.embed).clone()
        choices = rows[0].choices
        read = [
            self.read_words(
                placed, hypothesis(placed.prompt, word, choices), hypothesis(placed.marked, word, choices)
            )
            for word in choices
        ]
        ids, mask = pad([[first, *pieces[: LONGEST - 2], last] for pieces, _ in read])
        embeds = F.embedding(ids, model.encoder.words).detach().requires_grad_()
        hidden = model.encoder.read(embeds, mask).float() * mask[..., None]
        vectors = F.normalize(hidden.sum(1) / mask.sum(1, keepdim=True), dim=1)
        logp = (premises @ vectors.T).div(TEMPERATURE).log_softmax(-1)  # (rows, labels)
        loss = -logp.gather(1, torch.tensor([[row.right] for row in rows])).mean()
        (gradient,) = torch.autograd.grad(loss, [embeds])
        owner = [[-1, *owned[: LONGEST - 2], -1] for _, owned in read]
        return Gradient(float(loss.detach()), by_word(gradient, owner, len(placed.words)))
