"""Models that paint: `images/PROVIDER/NAME`, an endpoint at `/images/generations` in OpenAI's form.

The answer to a request is a mark of the picture (`whet._util.media`), which is kept by its hash, in the folder `images` beside
the cache and in this process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from whet._util.media import keep_painted
from whet.errors import ProviderError
from whet.models.language_model import AnswersOnly
from whet.models.openai import OpenAIModel
from whet.types import Completion, Request

IMAGES = "images"
"""The provider in the address of such a model; the provider of its endpoint follows."""


class ImageModel(AnswersOnly):
    """A model behind `/images/generations` as one that answers: the texts of a request's messages in, the mark of a picture out.

    So a call of it goes the road of every other call: limits, retries, pace, journal, price (by `picture`), cache. Sampling
    options of a request (temperature, bound on tokens, stop texts) do not reach it; those of its own stand in `extra_body`
    (size, quality, seed).
    """

    simulated = False
    local = False
    paints = True

    def __init__(self, model: OpenAIModel) -> None:
        """`model`: the same one as if it answered with texts."""
        self._model = model
        self.address, self.base_url = f"{IMAGES}/{model.address}", model.base_url
        self.identity: Mapping[str, object] = model.identity
        self.variant = model.variant

    async def generate(self, request: Request) -> list[Completion]:
        """One HTTP call; 1 to `request.n` pictures. Raises ProviderError, as any model does, and where an answer holds no picture
        that can be read."""
        text = "\n\n".join(message.content for message in request.messages)
        answer = await self._model.paint(text, request)
        if isinstance(answer, Completion):
            return [answer]
        pictures, usage = answer
        marks = [keep_painted(picture) for picture in pictures]
        if None in marks:
            raise ProviderError(
                f"{self.address}: the answer holds no PNG, JPEG or WebP. Ask for one of these with extra_body.",
                status=200,
                fatal=True,
            )
        first = replace(usage, pictures=1)
        rest = replace(usage, input_tokens=0, output_tokens=0, cost_usd=None, pictures=1)
        return [Completion(str(mark), usage=rest if i else first) for i, mark in enumerate(marks)]

    async def close(self) -> None:
        """Close the connections."""
        await self._model.close()
