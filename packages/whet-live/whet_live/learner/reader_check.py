"""Whether the model that reads feedback can be reached: asked once when learning begins, so that nobody waits for it in vain."""

from __future__ import annotations

import asyncio

from whet.errors import WhetError
from whet.models.language_model import LanguageModel
from whet.task import ModelSpec
from whet.task.roles import changed_spec, model_of, with_base_url
from whet.types import Message, Request
from whet_live.learner.context import LearnerConfig

PATIENCE_SECONDS = 60.0
_PROVIDER = "provider:"


def reader_of(config: LearnerConfig) -> LanguageModel | None:
    """The model that reads feedback; None where people do. Raises UsageError for an address that names no model, and for one
    that cannot be used."""
    if not config.reader:
        return None
    spec = changed_spec(ModelSpec(), config.optimizer_lm, "optimizer")
    return model_of(with_base_url(spec, config.reader_url, None), "optimizer")


def check_reader(config: LearnerConfig) -> None:
    """Raise UsageError where the address of the reader cannot be used, before anything is asked."""

    async def build() -> None:
        model = reader_of(config)
        if model is not None:
            await model.close()

    asyncio.run(build())


def reader_fault(config: LearnerConfig) -> str:
    """Why the reader does not answer, from one short call; empty where it does, and where there is none."""
    return asyncio.run(_fault(config))


async def _fault(config: LearnerConfig) -> str:
    try:
        model = reader_of(config)
    except WhetError as error:
        return str(error)
    if model is None or model.simulated:
        return ""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            answers = await model.generate(Request((Message("user", "Answer with: yes"),), max_tokens=64))
    except TimeoutError:
        return f"{model.address} gave no answer within {PATIENCE_SECONDS:g} s."
    except WhetError as error:
        return str(error)
    finally:
        await model.close()
    error_text = answers[0].error if answers else ""
    return error_text if error_text and error_text.startswith(_PROVIDER) else ""
