"""actadd: where the vector is added and what it does, what is kept of it, and that a model which cannot be reached is refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

pytest.importorskip("torch", reason="steering needs torch: pip install 'whet[train]'")
pytest.importorskip("transformers", reason="steering needs transformers: pip install 'whet[train]'")

import torch
from benchmarks.simulated.clause_tasks import instruction_for
from benchmarks.steering import START, examples
from tests.environments.worlds import small

from whet.environments.environment import Environment, Generation
from whet.errors import UsageError
from whet.methods.actadd import Config, SteeringVector, actadd, check, deploy, steering
from whet.models.addresses import resolve
from whet.models.steered import (
    Steering,
    activation_difference,
    head_of,
    layers_of,
    residual_stream,
    steered_weights,
)
from whet.rewards.text import ExactMatch
from whet.run import Budget, MemoryRun
from whet.testing.runs import MeteredRun
from whet.types import Message, Request

WORDS = instruction_for(["capitals"])


@pytest.fixture(scope="module")
def model() -> Any:
    torch.set_num_threads(1)
    return resolve("embedded/tiny")


def question(line: str) -> Request:
    return Request((Message("user", f"Rewrite the line in the right form.\n\n{line}"),), 0.0, 16)


def steered(model: Any, coefficient: float, layer: int = 4) -> Any:
    difference = activation_difference(model.weights, WORDS, " ", layer)
    return model.around(steered_weights(model.weights, Steering(difference, layer, coefficient)))


async def test_it_steers_and_leaves_the_model_as_it_was(model: Any) -> None:
    plain = (await model.generate(question("amber beacon")))[0].text
    assert plain != "AMBER BEACON"
    assert (await steered(model, 4.0).generate(question("amber beacon")))[0].text == "AMBER BEACON"
    assert (await steered(model, 0.0).generate(question("amber beacon")))[0].text == plain
    assert (await model.generate(question("amber beacon")))[0].text == plain
    assert not layers_of(model.weights)[4]._forward_pre_hooks, "no hook stays"


def test_the_difference_is_nothing_in_the_head_that_both_texts_share(model: Any) -> None:
    difference = activation_difference(model.weights, WORDS, " ", 3)
    head = len(head_of(model.weights))
    assert head > 0 and not difference[:head].any() and difference[head:].any()
    assert len(difference) == head + len(model.weights.encode(WORDS))


def test_what_a_layer_reads_moves_by_the_vector_at_its_positions_only(model: Any) -> None:
    """Padded on the left and cut off in a cache: the positions count the tokens that are there."""
    weights, seen = model.weights, []
    vector = torch.arange(2 * weights.model.config.hidden_size, dtype=torch.float).view(2, -1)
    changed = steered_weights(weights, Steering(vector, 2, 0.5)).model
    rows = [[5, 6, 7, 8], [9, 10]]
    ids, mask = weights.pad_rows(rows, left=True)
    hook = layers_of(weights)[2].register_forward_hook(
        lambda m, args, kwargs, out: seen.append(args[0]), with_kwargs=True
    )
    try:
        for one in (weights.model, changed):
            one(input_ids=ids, attention_mask=mask, use_cache=False)
    finally:
        hook.remove()
    moved = seen[1] - seen[0]
    expected = torch.zeros_like(moved)
    expected[0, :2] = expected[1, 2:] = 0.5 * vector
    assert torch.allclose(moved, expected, atol=1e-4)


async def test_a_batch_and_its_parts_say_the_same(model: Any) -> None:
    lines = ["amber beacon", "cedar", "opal orchid pebble", "amber barrel"]
    changed = steered(model, 4.0)
    together = await changed.generate_batch([question(line) for line in lines])
    alone = [(await changed.generate(question(line)))[0].text for line in lines]
    assert [one[0].text for one in together] == alone


def test_a_text_is_filled_up_with_blanks(model: Any) -> None:
    weights = model.weights
    length = len(head_of(weights)) + 6
    assert torch.equal(
        residual_stream(weights, "", 1, length), residual_stream(weights, "      ", 1, length)
    ) or len(weights.encode("      ")) != 6 * len(weights.encode(" "))
    assert residual_stream(weights, WORDS, 1, length).shape[0] == length


def test_a_random_vector_is_as_long_at_each_position(model: Any) -> None:
    vector = SteeringVector(model)
    own = steering(vector, Config(plus=WORDS), 2, 4.0)
    other = steering(vector, Config(plus=WORDS, vector="random"), 2, 4.0)
    assert torch.allclose(own.vector.norm(dim=-1), other.vector.norm(dim=-1), rtol=1e-4)
    assert not torch.allclose(own.vector, other.vector)


def task(model: Any) -> Environment:
    rows = examples("capitals", 12)
    return Environment(
        model, ExactMatch(strict=True), tuple(rows[:6]), tuple(rows[6:]), generation=Generation(0.0, 24)
    )


async def test_it_finds_layer_and_strength_and_is_deployed_as_it_was_validated(model: Any) -> None:
    env, config = task(model), Config(plus=WORDS, layers=2, examples=2, finalists=1)
    run = MeteredRun({"task": model})
    found = await actadd(run, env, None, START, config)
    validated = {v["id"]: v["validation"] for name, v in run.logged if name == "validated"}
    assert found.system is not None and found.prompt == START
    assert validated[found.id] > 0.5 > validated[START.id] and len(validated) == 2
    assert len([1 for name, _ in run.logged if name == "steered"]) == 8
    system = deploy(env, None, run.kept[found.system], config)
    (score,) = await system.score(MemoryRun({"task": model}), [START], env.validation)
    assert score.mean == validated[found.id]


async def test_within_a_limit_it_tries_less(model: Any) -> None:
    run = MeteredRun({"task": model}, limits=Budget(task_calls=30))
    await actadd(run, task(model), None, START, Config(plus=WORDS))
    assert run.spent["task"] <= 30


def test_a_model_whose_activations_cannot_be_reached_is_refused() -> None:
    env = small(lambda request: "yes").env
    with pytest.raises(
        UsageError, match=r"test/function cannot be steered: its activations must be in this process"
    ):
        check(env, Config(plus="Love"))


def test_a_text_to_add_is_needed(model: Any) -> None:
    with pytest.raises(UsageError, match="actadd adds the activations of a text"):
        check(task(model), Config())


def test_a_vector_of_another_model_is_refused(model: Any) -> None:
    vector = SteeringVector(model, Steering(torch.zeros(2, 7), 0, 1.0))
    with pytest.raises(UsageError, match="belongs to another model"):
        SteeringVector(model).load(vector.save())
    assert dataclasses.asdict(Config())["plus"] == ""
