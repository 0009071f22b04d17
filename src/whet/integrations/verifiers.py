"""verifiers: an environment of that library is a program of whet, and what it improves is the system prompt of its tasks.

    optimize(vf.load_environment(config), lm="openai/gpt-4o-mini", method="gepa", budget=whet.Budget(calls=2000))

An episode is a rollout, its rewards are the reward and its named parts. The environment runs as it is; what its agents ask a
model arrives at an endpoint of this process, and goes from there through the rollout, so that budgets, journal, trace and the
sealed test are those of any program. Needs verifiers 0.4.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import importlib.util
import inspect
import json
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from whet import api
from whet._util.sources import source_hash
from whet.api.results import RunResult
from whet.environments.agent_chat import ChatForm
from whet.environments.agent_endpoint import send_answer, write_failure
from whet.environments.agent_forms import MODEL, AgentAnswer, AgentRequest
from whet.environments.program import CALLS, ProgramModelHere
from whet.environments.program_model import ProgramFailed
from whet.errors import UsageError
from whet.integrations.shared import as_json_value
from whet.methods import MethodChoice
from whet.prompt import Prompt
from whet.types import content_hash

PROMPT = "system_prompt"
"""The name of the prompt, which is that of the tasks' field."""
SECONDS = 600.0
"""Seconds of an episode beside its calls at most: agents, tools and judges of many episodes run at the same time."""
_OWN = ("data", "reward", "program")
_PATH = "/v1/chat/completions"


def optimize(
    env: Any,
    system_prompt: str | None = None,
    *,
    tasks: Iterable[Any] | None = None,
    feedback: Callable[[object], str | None] | None = None,
    method: MethodChoice = "gepa",
    low: float = 0.0,
    high: float = 1.0,
    calls: int = CALLS,
    seconds: float = SECONDS,
    **options: Any,
) -> RunResult:
    """A better system prompt for an environment, proved on tasks that the search never saw.

    system_prompt: where the search begins; None is that of the first task that has one.
    tasks: None is the environment's whole taskset; else some of it, such as `env.taskset.take(200)`.
    feedback: (episode) -> what was wrong in it, in words, or None.
    low, high: the range of an episode's reward, the mean over its traces with rewards.
    calls, seconds: what one episode may take at most: model calls, and seconds beside them.
    options: the other keywords of whet.optimize: lm, optimizer_lm, budget, seed, run, splits, settings, ...

    The same call again resumes, or returns the finished result. Raises what whet.optimize raises.
    """
    if importlib.util.find_spec("verifiers") is None:
        raise UsageError(
            "whet.integrations.verifiers needs verifiers. Install it with: pip install verifiers"
        )
    own = next((name for name in _OWN if name in options), None)
    if own is not None:
        raise UsageError(f"{own}= comes from the environment. Leave it out.")
    if tasks is None and not env.taskset.bounded:
        raise UsageError("The taskset yields tasks without end. Say which: tasks=env.taskset.take(200).")
    known = {_name(task): task for task in (env.taskset if tasks is None else tasks)}
    own_prompts = (task.data.system_prompt for task in known.values())
    start = system_prompt or next((text for text in own_prompts if text), None)
    if start is None:
        raise UsageError("No task has a system prompt. Say where to begin: optimize(env, 'Answer briefly.').")
    world = _EnvironmentLoop(env)
    with world:
        return api.optimize(
            Prompt.of_parts({PROMPT: start}),
            data=[_row(name, task) for name, task in known.items()],
            reward={"program": {"function": _EpisodeReward(feedback), "low": low, "high": high}},
            program={"function": _EnvironmentProgram(world, known), "calls": calls, "seconds": seconds},
            method=method,
            **options,
        )


def _name(task: Any) -> str:
    """A task by its content, without its place in the taskset and without what is optimised."""
    return content_hash(task.data.model_dump(mode="json", exclude={"idx", "system_prompt"}))[:12]


def _row(name: str, task: Any) -> dict[str, object]:
    row = {"id": name, "input": task.data.prompt_text or task.data.description or task.data.name or name}
    target = getattr(task.data, "answer", None)
    return (
        row
        if target is None
        else {**row, "target": target if isinstance(target, str) else json.dumps(as_json_value(target))}
    )


class _EnvironmentProgram:
    """A rollout: one episode of a task under a system prompt."""

    def __init__(self, world: _EnvironmentLoop, tasks: Mapping[str, Any]) -> None:
        self.world, self.tasks = world, tasks
        task = next(iter(tasks.values()))
        kinds = [type(world.env), type(world.env.taskset), type(task)]
        code = [
            [n, source_hash(f)]
            for kind in kinds
            for n, f in sorted(vars(kind).items())
            if inspect.isfunction(f)
        ]
        names = [f"{kind.__module__}.{kind.__qualname__}" for kind in kinds]
        config = world.env.config.model_dump(mode="json")
        self.version = content_hash(
            [importlib.metadata.version("verifiers"), names, code, as_json_value(config)]
        )

    async def __call__(
        self, lm: ProgramModelHere, prompts: Mapping[str, str], example: Mapping[str, Any]
    ) -> _EpisodeText:
        task = self.tasks[example["id"]].with_system_prompt(prompts[PROMPT])
        future = asyncio.run_coroutine_threadsafe(self.world.episode(task, lm), self.world.loop)
        return _EpisodeText.of(await asyncio.wrap_future(future))


class _EnvironmentLoop:
    """An environment that serves in a thread with an event loop of its own, and the endpoint that its agents ask."""

    def __init__(self, env: Any) -> None:
        self.env = env
        self.loop = asyncio.new_event_loop()
        self.asking: dict[str, _EpisodeModel] = {}
        self.ready, self.over = threading.Event(), asyncio.Event()
        self.failed: BaseException | None = None
        self.thread = threading.Thread(target=self._run, name="whet-verifiers", daemon=True)

    def __enter__(self) -> None:
        self.thread.start()
        self.ready.wait()
        if self.failed is not None:
            self.thread.join()
            raise self.failed

    def __exit__(self, *_: object) -> None:
        self.loop.call_soon_threadsafe(self.over.set)
        self.thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_until_complete(self._serve())
        except BaseException as error:
            self.failed = error
        finally:
            self.ready.set()
            self.loop.close()

    async def _serve(self) -> None:
        import verifiers.v1 as vf
        from aiohttp import web

        app = web.Application(client_max_size=2**30)
        app.router.add_post(_PATH, self._complete)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            (address, *_) = runner.addresses
            client = vf.EvalClientConfig(
                base_url=f"http://127.0.0.1:{address[1]}/v1", api_key_var="WHET_NO_KEY"
            )
            self.context = vf.ModelContext(model=MODEL, client=client)
            async with self.env.serving():
                self.ready.set()
                await self.over.wait()
        finally:
            await runner.cleanup()

    async def episode(self, task: Any, lm: ProgramModelHere) -> Any:
        """One episode, its calls answered by `lm`. Raises what ended a call, and RuntimeError for an episode that failed."""
        model, traces = _EpisodeModel(lm, task.data.system_prompt), []

        def note_trace(trace: Any) -> None:
            traces.append(trace.id)
            self.asking[trace.id] = model

        try:
            episode = await self.env.run_episode(task, self.context, on_trace=note_trace)
        finally:
            for name in traces:
                self.asking.pop(name, None)
        if model.failed is not None:
            raise model.failed
        errors = [*episode.errors, *(trace.last_error for trace in episode.traces if trace.has_error)]
        if errors:
            raise RuntimeError(f"{errors[-1].type}: {errors[-1].message}")
        return episode

    async def _complete(self, request: Any) -> Any:
        from verifiers.v1.clients.client import SESSION_ID_HEADER

        form, model = ChatForm(), self.asking.get(request.headers.get(SESSION_ID_HEADER, ""))
        if model is None:
            return write_failure(form, 404, "no episode of whet asks here")
        try:
            call = form.read(await request.json())
            answer = await model.answer(call)
        except (Exception, asyncio.CancelledError) as error:
            over = ProgramFailed("program: a call was made after the rollout was over")
            model.failed = error if isinstance(error, Exception) else over
            return write_failure(form, 400, str(model.failed))
        return await send_answer(request, form, call, form.write(call, answer))


class _EpisodeModel:
    """The requests of an episode's agents. `failed`: the call without an answer."""

    def __init__(self, lm: ProgramModelHere, system_prompt: str) -> None:
        self.lm, self.system_prompt = lm, system_prompt
        self.failed: Exception | None = None

    async def answer(self, call: AgentRequest) -> AgentAnswer:
        """The answer to a request, as one under the system prompt where it holds that."""
        under = any(self.system_prompt in m.content for m in call.messages if m.role != "assistant")
        return await self.lm.ask_as_agent(call, PROMPT if under else "")


class _EpisodeText(str):
    """The last reply of an episode, with the episode itself for the reward."""

    episode: Any

    @classmethod
    def of(cls, episode: Any) -> _EpisodeText:
        traces = [trace for trace in episode.traces if trace.rewards] or episode.traces
        text = cls(traces[-1].last_reply)
        text.episode = episode
        return text


class _EpisodeReward:
    """The rewards of an episode. It grades episodes only, so it is not tried on texts."""

    recorded = True

    def __init__(self, feedback: Callable[[object], str | None] | None) -> None:
        self.feedback = feedback
        self.version = "" if feedback is None else source_hash(feedback)

    def __call__(self, example: Mapping[str, Any], output: _EpisodeText) -> dict[str, object]:
        episode = output.episode
        rewards = [{n: r for n, r in trace.rewards.items() if r is not None} for trace in episode.traces]
        scored = [sum(r.value for r in own.values()) for own in rewards if own]
        if not scored:
            raise ValueError("the environment recorded no reward for this episode")
        names = {name for own in rewards for name in own}
        parts = {name: _mean([own[name].score for own in rewards if name in own]) for name in sorted(names)}
        critique = None if self.feedback is None else self.feedback(episode)
        return {**parts, "reward": _mean(scored), "critique": critique or None}


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
