"""From a task and options to models, clients and an environment; everything wrong is refused here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeAlias

from whet._util.workers import HERE, Executor, Work
from whet.engine.batched_calls import check_batches
from whet.engine.cache import AnswerCache
from whet.engine.model_client import AdaptiveLimiter, ModelClient, share_limits
from whet.engine.options import Options
from whet.engine.plan_json import PlanJSON
from whet.engine.shared_cache import open_cache
from whet.engine.trained_policy import PolicyChoice, choose_policy
from whet.environments.environment import Environment, Generation, as_environment_type, check_environment
from whet.environments.multiturn import MultiTurn, multiturn
from whet.environments.program import ProgramEnvironment, as_program
from whet.environments.several import EnvironmentCase, SeveralEnvironment
from whet.errors import UsageError, parameter, quantity, task_setting
from whet.methods import (
    LABEL_SCORES,
    LOCAL,
    OPTIMIZER,
    OPTIMIZER_OPTIONAL,
    REGIONS,
    Method,
    carries_policy,
    default_method,
    get_method,
)
from whet.models.addresses import split_address
from whet.models.callable import ModelChoice, as_model
from whet.models.endpoint import missing_keys_noted
from whet.models.language_model import LanguageModel, reads_parts
from whet.models.model_workers import ModelWorkers, models_in_workers
from whet.rewards import JUDGE, TARGET_SCORE, Objectives, RewardFunction
from whet.rewards.objectives import COST, LATENCY, PROMPT_TOKENS
from whet.rewards.preference import EMBEDDINGS, with_embeddings
from whet.run import Budget
from whet.search.demonstrations import edits_several
from whet.task import ModelSpec, Task
from whet.task.roles import changed_spec, identity_of, model_key, model_of, taken_by_task_model, with_base_url
from whet.task.several import over_models
from whet.task.spec import SECOND, TRANSFER, WORST, role_of_model
from whet.types import EMBEDDING
from whet_client.media import count_marks, is_known

Models: TypeAlias = dict[tuple[Any, ...], LanguageModel]

NONE = "none"
DEFAULT_MODEL = "embedded/encoder"
"""The task model of a task with labels where nobody names one."""
DEFAULT_CONCURRENCY = 32
BOUND_UNDER_LIMIT = 1024


@dataclass
class Assembly:
    """Models in their roles, ready to run. `gaps`: what the caller has not said or set, for the plan. `executor`: who calls the
    functions of the user."""

    method: str
    env: Environment
    clients: Mapping[str, ModelClient]
    addresses: Mapping[str, str]
    generation: Mapping[str, object]
    policy: PolicyChoice | None = None
    models: Models = field(default_factory=dict)
    gaps: PlanJSON = field(default_factory=PlanJSON)
    executor: Executor = HERE

    def cache(self, folder: Path, options: Options) -> AnswerCache:
        """The completions cache: that of the team, where state lies in a database; else shared by all runs of the root, or the
        run's own when `run` names its folder."""
        place = Path(options.root).absolute() if options.run is None else folder
        local = all(client.model.local for client in self.clients.values())
        return open_cache(place, options.fresh, local=local)

    async def prepare(self, works: Callable[[], Sequence[Work]], say: Callable[[str], None]) -> None:
        """Start the workers before anything is paid: those for the user's functions (`works`, see `Executor`), and those that
        hold local models. `say` is told of the latter."""
        await self.executor.prepare(works)
        for workers in self.list_workers():
            await workers.prepare(say)

    def list_workers(self) -> list[ModelWorkers]:
        """The workers of the local models, each once."""
        models = {id(client.model): client.model for client in self.clients.values()}
        of_each = [getattr(model, "workers", None) for model in models.values()]
        return [workers for workers in of_each if isinstance(workers, ModelWorkers)]

    async def close(self) -> None:
        """Release every model once, and the worker processes."""
        await self.executor.close()
        for model in {id(client.model): client.model for client in self.clients.values()}.values():
            await model.close()


def assemble(task: Task, options: Options, limits: Budget, models: Models | None = None) -> Assembly:
    """Resolve the models, choose the method, and check that they fit together. `models` are those that are there already.

    Raises UsageError for a missing model, an unpriced one under a cost limit, a method whose needs are not met; for a missing
    key where it is no dry run.
    """
    keys: AbstractContextManager[list[str]] = missing_keys_noted() if options.dry_run else nullcontext([])
    with keys as missing, models_in_workers(options.worker_choice):
        assembly = _assemble(task, options, limits, models)
    gaps: PlanJSON = {"missing_keys": missing} if missing else {}
    if takes_default_model(task, options):
        gaps["default_model"] = DEFAULT_MODEL
    if sent := {workers.address: workers.sent for workers in assembly.list_workers() if workers.sent}:
        gaps["sent"] = sent
    return replace(assembly, gaps=gaps)


def spread_over_models(task: Task, options: Options) -> tuple[Task, Options]:
    """The task with a case for each of several task models, and the options with the first of them as the usual one; both as they
    are where there is one model. Raises UsageError for a model that is named twice, or an aggregate of nothing."""
    lms = options.task_lms
    if lms is None and options.aggregate is None:
        return task, options
    aggregate = options.aggregate or task.aggregate
    if lms is None:
        if not task.cases:
            raise UsageError(
                f"{parameter('aggregate', aggregate)} combines the rewards of several tasks or task "
                "models, but there is only one of each. Name models with "
                f"{parameter('task_lms', 'A,B')}, or omit this option."
            )
        return over_models(task, (), aggregate), options
    if isinstance(lms, str) or len(lms) < 2 or None in lms:
        raise UsageError(
            f"{parameter('task_lms')} must name two or more models. For one model write {parameter('lm')}."
        )
    specs = [changed_spec(task.models["task"], lm, "task") for lm in lms]
    names = [spec.address or as_model(spec.model).address for spec in specs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"{parameter('task_lms')} names {twice} twice. Name each model once.")
    return over_models(task, names, aggregate), replace(options, lm=lms[0], task_lms=None, other_lms=lms[1:])


def takes_default_model(task: Task, options: Options) -> bool:
    """Whether nobody names the task model, and the one for labels in this process answers."""
    return bool(task.labels) and not changed_spec(task.models["task"], options.lm, "task").named


def _assemble(task: Task, options: Options, limits: Budget, models: Models | None) -> Assembly:
    models = {} if models is None else models
    spec = _task_spec(task, options)
    model = _model(models, spec, "task")
    scores = bool(task.labels) and model.can_score and task.world is None and task.program is None
    carried = carries_policy(len(task.train), limits.calls, limits.task_calls)
    method = options.method or task.method or default_method(model, scores, carried)
    env = Environment(
        model,
        with_encoder(_price_reward(task, spec)),
        task.train,
        task.validation,
        task.labels,
        _generation(spec, limits),
        scores,
        _description(task),
        targets=task.has_targets,
    )
    if task.world is not None:
        env = multiturn(env, task.world)
    if task.program is not None:
        env = as_program(env, task.program)
        _check_program(get_method(method), env)
    beside = _other_task_models(task, options, limits, models)
    _check_parts(task, model)
    if task.cases:
        env = _several(task, env, [(model, env.generation), *((m, g) for _, m, g in beside)])
        _check_several(get_method(method), env)
    else:
        check_environment(env)
    _check_metrics(env)
    if LABEL_SCORES in get_method(method).entry.needs and not scores:
        raise UsageError(
            f"The method {method} needs `labels:` in the task and a model that can score them (embedded/..., hf/...); "
            f"the model is {model.address}."
        )
    _check_local(method, model)
    _check_regions(get_method(method), task)
    policy = choose_policy(task, options, get_method(method), model.address)
    clients = {"task": _client(model, spec, options)} | _other_clients(task, options, method, models, spec)
    clients |= {
        role_of_model(place): replace(_client(other, own, options), counts_as="task", same_answers=True)
        for place, (own, other, _) in enumerate(beside, 1)
    }
    clients |= _second_client(task, options, models, clients.get("judge"))
    clients |= _embedding_client(task, options, method, spec)
    share_limits(clients)
    _check_writers(clients, scores or bool(task.cases))
    _check_prices(clients, limits)
    if options.batch:
        check_batches(clients, env, limits)
    addresses = {role: client.model.address for role, client in clients.items()}
    if policy is not None:
        addresses["policy"] = policy.pinned
    g = env.generation
    how = {
        "temperature": g.temperature,
        "max_tokens": g.max_tokens,
        "stop": list(g.stop),
        **({"thoughts": True} if g.thoughts else {}),
        **_identities(clients),
    }
    return Assembly(method, env, clients, addresses, how, policy, models)


def _other_task_models(
    task: Task, options: Options, limits: Budget, models: Models
) -> list[tuple[ModelSpec, LanguageModel, Generation]]:
    """The task models after the first: how each is reached, itself, and how it is asked."""
    usual, others = _task_spec(task, options), []
    for lm in options.other_lms:
        own = with_base_url(changed_spec(task.models["task"], lm, "task"), options.base_url, usual)
        others.append((own, _model(models, own, "task"), _generation(own, limits)))
    return others


def _several(
    task: Task, env: Environment, models: Sequence[tuple[LanguageModel, Generation]]
) -> SeveralEnvironment:
    """The environment of a task made of several, each case with its own reward, labels and world. Raises UsageError for a model
    that cannot answer one of them."""
    cases = {}
    for case in task.cases:
        (model, generation), own = models[case.model], case.task
        scores = bool(own.labels) and model.can_score and own.world is None
        rows = {
            name: tuple(row for row in getattr(task, name) if row.case == case.name)
            for name in ("train", "validation")
        }
        one = Environment(
            model,
            with_encoder(own.reward),
            rows["train"],
            rows["validation"],
            own.labels,
            generation,
            scores,
            own.description,
        )
        if own.shaping is not None:
            raise UsageError(
                f"{case.name}: a task that consists of several tasks cannot have `shaping`. Remove `shaping`."
            )
        one = one if own.world is None else multiturn(one, own.world)
        check_environment(one)
        if not (scores or model.can_generate) or (TARGET_SCORE in own.reward.needs and not model.can_score):
            raise UsageError(
                f"{model.address} cannot answer {own.name} in a way that its reward can grade. Name "
                f"another model with {parameter('task_lms')}, or remove that task."
            )
        cases[case.name] = EnvironmentCase(one, case.role, case.frame)
    worst = task.aggregate == WORST
    return as_environment_type(env, SeveralEnvironment, scores=False, cases=cases, worst=worst)


def _check_several(method: Method, env: Environment) -> None:
    """Raise UsageError for a method that works on one task model's weights or probabilities."""
    if method.deploys() or {LABEL_SCORES, LOCAL} & set(method.entry.needs):
        raise UsageError(
            f"The method {method.entry.name} works with the weights or the label probabilities of one "
            "model on one task, but there are several. Choose a method that writes texts, such as "
            "prompt_learning or gepa."
        )


def _check_writers(clients: Mapping[str, ModelClient], scores: bool) -> None:
    """Raise UsageError for a model that cannot write the texts of its role; before a run has a folder."""
    for role, client in clients.items():
        if (
            client.model.can_generate
            or role == EMBEDDING
            or (scores and (role == "task" or client.same_answers))
        ):
            continue
        if role == "task":
            labels = task_setting("Give labels=[...]", "Add `labels:` to task.yaml")
            raise UsageError(
                f"{client.model.address} cannot generate text, because it only scores given answers. "
                f"{labels}, or name a model that generates text, for example "
                f"{parameter('lm', 'openai/NAME')} or {parameter('lm', 'hf/PATH')}."
            )
        raise UsageError(
            f"{client.model.address} has the role {role} and cannot generate text, because it only "
            "scores given answers. Name a model that generates text, for example "
            f"{parameter(f'{role}_lm', 'openai/NAME')}."
        )


def _identities(clients: Mapping[str, ModelClient]) -> dict[str, object]:
    """By role, the facts besides the address that change the answers of the model; empty if there are none."""
    options = {
        role: values
        for role, client in clients.items()
        if (
            values := identity_of(client.model)
            | ({} if client.bound is None else {"max_tokens": client.bound})
        )
    }
    return {"options": options} if options else {}


def _price_reward(task: Task, spec: ModelSpec) -> RewardFunction:
    """The task's reward; its objective in dollars knows the price. Raises UsageError without one."""
    if not isinstance(task.reward, Objectives) or COST not in task.reward.metrics:
        return task.reward
    if spec.price is None:
        raise UsageError(
            f"{task.name}: an objective is {COST}, but the task model has no price. Set the price in "
            "task.yaml: models: {task: {price: {input: USD, output: USD}}} per million tokens; in "
            'Python lm={"address": ..., "price": {"input": USD, "output": USD}}.'
        )
    return replace(task.reward, cost=spec.price.cost)


def _description(task: Task) -> str:
    """The description of the task for a model that writes prompts, with its objectives."""
    if not isinstance(task.reward, Objectives):
        return task.description
    return f"{task.description}\n\n{task.reward.description}".strip()


def _check_metrics(env: Environment) -> None:
    """Raise UsageError for objectives that cannot be measured with this model."""
    metrics = env.reward.metrics - {PROMPT_TOKENS} if isinstance(env.reward, Objectives) else frozenset()
    if metrics and env.scores:
        raise UsageError(
            f"An objective is {min(metrics)}, but {env.model.address} only scores labels and writes "
            f"nothing. Name another metric, such as {PROMPT_TOKENS}, or another model."
        )
    if LATENCY in metrics and (env.supports_batching or isinstance(env, MultiTurn)):
        raise UsageError(
            f"An objective is {LATENCY}, but whet times only single calls to a model behind an "
            "endpoint. It cannot time a model in this process, which answers in batches, or "
            "episodes. Name another metric."
        )


@dataclass(frozen=True)
class TransferModel:
    """Another model for the prompts of a task, asked as the task model is unless `models: {transfer: ...}` says more."""

    client: ModelClient
    generation: Generation
    scores: bool

    @property
    def address(self) -> str:
        """Address of the model."""
        return self.client.model.address

    def answers(self, env: Environment) -> Environment:
        """The environment with this model in the task model's place, for each case of a task made of several. Raises UsageError
        where these ask several models."""
        if isinstance(env, SeveralEnvironment):
            if len({case.role for case in env.cases.values()}) > 1:
                raise UsageError(
                    "The run has several task models, but a transfer replaces a single task model. "
                    "Name only one task model."
                )
            cases = {
                name: replace(case, env=replace(self, scores=self.client.model.can_score).answers(case.env))
                for name, case in env.cases.items()
            }
            return replace(env, model=self.client.model, generation=self.generation, cases=cases)
        scores = self.scores and bool(env.labels) and not isinstance(env, MultiTurn | ProgramEnvironment)
        return replace(env, model=self.client.model, generation=self.generation, scores=scores)


def without_price_of_another(task: Task, choice: ModelChoice | Mapping[str, object]) -> Task:
    """The task without the price of its own model, where another one is chosen."""
    spec = task.models["task"]
    if changed_spec(spec, choice, "task").priced_as is None:
        return task
    return replace(task, models={**task.models, "task": replace(spec, price=None)})


def transfer_model(
    task: Task, options: Options, limits: Budget, choice: ModelChoice | Mapping[str, object]
) -> TransferModel:
    """Another model, mostly by its address, as a task model beside the usual one. The task's price counts for its own model only.

    Raises UsageError for one that cannot answer the task or has no price under a limit on cost.
    """
    usual = _task_spec(task, options)
    own = _role_spec(task, TRANSFER, choice, options)
    if not own.named:
        raise UsageError(
            f"Options of the transfer model are given, but {parameter('transfer')} names no model. "
            "Add its address."
        )
    same = (own.address, own.model) == (usual.address, usual.model)
    defaults = {name: getattr(own, name) or getattr(usual, name) for name in ("max_tokens", "stop")}
    spec = replace(
        own,
        **defaults,
        price=own.price or (usual.price if same and usual.priced_as is None else None),
        temperature=usual.temperature if own.temperature is None else own.temperature,
    )
    model = _model({}, spec, TRANSFER)
    scores = bool(task.labels) and model.can_score and task.world is None and task.program is None
    if not (scores or model.can_generate) or (TARGET_SCORE in task.reward.needs and not model.can_score):
        raise UsageError(
            f"{parameter('transfer', model.address)}: this model cannot answer {task.name} in a way "
            "that its reward can grade."
        )
    client = _client(model, spec, options)
    _check_prices({TRANSFER: client}, limits)
    other = TransferModel(client, _generation(spec, limits), scores)
    env = Environment(model, task.reward, task.train, task.validation, task.labels, other.generation, scores)
    check_environment(env)
    return other


def with_encoder(reward: RewardFunction) -> RewardFunction:
    """The reward, with the embedded encoder where it is fitted to embeddings. Raises UsageError without one."""
    if EMBEDDINGS not in reward.needs:
        return reward
    from whet.models.embedded import load

    return with_embeddings(reward, load("encoder").embed)  # type: ignore[attr-defined]


def _check_parts(task: Task, model: LanguageModel) -> None:
    """Raise UsageError for rows or a prompt with images where the task model reads texts only, and for a prompt that names one
    which is not there."""
    if (lost := next((mark for mark in task.prompt.marks if not is_known(mark)), None)) is not None:
        raise UsageError(
            f"the prompt holds {lost[:28]}...]], and there is no content with this hash. Give the prompt of a run as "
            "`whet show RUN --plain` prints it, or name the file again: [[whet:image:FILE]]."
        )
    if task.prompt.marks and not reads_parts(model):
        raise UsageError(
            f"the prompt holds an image, a sound or a file, and {model.address} reads texts only. Name a model behind an "
            f"endpoint that reads them, with {parameter('lm', 'provider/name')}."
        )
    rows = (row for part in (task.train, task.validation, task.test) for row in part)
    row = next((row for row in rows if any(map(count_marks, row.values.values()))), None)
    if row is not None and not reads_parts(model):
        raise UsageError(
            f"{row.place} holds an image, a sound or a file, and {model.address} reads texts only. Name a model behind an "
            f"endpoint that reads them, with {parameter('lm', 'provider/name')}."
        )


def _needs_judge(task: Task) -> bool:
    """Whether the reward asks a judge, a world has a simulated user, whom the judge's model plays, or it answers for bonuses."""
    bonus = (
        task.shaping is not None and task.world is not None and task.shaping.bonus.calls(task.world.turns) > 0
    )
    return JUDGE in task.reward.needs or bool(getattr(task.world, "judge_calls", 0)) or bonus


def _asks_judge(task: Task, options: Options) -> bool:
    """Whether a program may ask a judge: where one is named."""
    return task.program is not None and changed_spec(task.models["judge"], options.judge_lm, "judge").named


def _check_program(method: Method, env: Environment) -> None:
    """Raise UsageError for a method whose candidates do not run a program."""
    name, needs = method.entry.name, method.entry.needs
    if (method.deploys() and not method.entry.programs) or LABEL_SCORES in needs or LOCAL in needs:
        raise UsageError(
            f"The method {name} works with a single prompt and its model's weights or probabilities, "
            "but the task has a program. Choose a method that writes texts, such as protegi or opro, or mmgrpo, which trains the "
            "model that a program asks."
        )
    if TARGET_SCORE in env.reward.needs:
        raise UsageError(
            f"The reward {env.reward.name} asks the task model for a score of the target after one "
            "prompt, but the task has a program. Choose a reward that reads answers."
        )


def _check_regions(method: Method, task: Task) -> None:
    if REGIONS in method.entry.needs and not edits_several(task.prompt, task.region):
        raise UsageError(
            f"The method {method.entry.name} gives each of several prompts its share of the reward, but it may edit one text "
            "only. Give the task a program with several prompts, or several fences, and name no `region:`; or choose a "
            "method for a single prompt, such as evoprompt."
        )


def _check_local(method: str, model: LanguageModel) -> None:
    if LOCAL in get_method(method).entry.needs and not model.local:
        raise UsageError(
            f"The method {method} needs the task model's weights or gradients, so it must run in this process "
            f"(hf/..., embedded/...); the model is {model.address}."
        )


def _task_spec(task: Task, options: Options) -> ModelSpec:
    spec = with_base_url(changed_spec(task.models["task"], options.lm, "task"), options.base_url, None)
    if spec.named:
        return spec
    if task.labels:
        return replace(spec, address=DEFAULT_MODEL)
    raise UsageError(
        f"{task.name}: no task model is named. Name a model with "
        f"{parameter('lm', 'provider/name')}{task_setting('', ', or `models: {task: ...}` in task.yaml')}."
    )


def _other_clients(
    task: Task, options: Options, method: str, models: Models, task_spec: ModelSpec
) -> dict[str, ModelClient]:
    """Clients of optimizer and judge, where the method or the reward needs or can use one.

    Without an address of its own a role is taken by the task model when that can generate; a role that is only
    optional is not taken by a model that runs in this process.
    """
    model = _model(models, task_spec, "task")
    needs = get_method(method).entry.needs
    clients = {}
    for role, address, must, may in (
        ("optimizer", options.optimizer_lm, OPTIMIZER in needs, OPTIMIZER_OPTIONAL in needs),
        ("judge", options.judge_lm, _needs_judge(task), _asks_judge(task, options)),
    ):
        if not (must or may) or (address == NONE and not must):
            continue
        spec = _role_spec(task, role, None if address == NONE else address, options)
        if not spec.named and address != NONE and model.can_generate and (must or not model.local):
            spec = taken_by_task_model(spec, task_spec)
        if spec.named:
            client = _client(_model(models, spec, role), spec, options)
            clients[role] = replace(client, writes=True, bound=spec.output_bound)
        elif must:
            raise UsageError(
                f"{method} on {task.name} needs a model for the role {role}. Name a model with --{role}-lm "
                f"provider/name ({role}_lm= in Python)."
            )
    return clients


def _second_client(
    task: Task, options: Options, models: Models, judge: ModelClient | None
) -> dict[str, ModelClient]:
    """The model client of the second opinion's judge, if it needs one: never another role's model by default."""
    if task.second_opinion is None or JUDGE not in task.second_opinion.needs:
        return {}
    spec = _role_spec(task, SECOND, None, options)
    if not spec.named:
        raise UsageError(
            f"{task.name}: the second opinion ({task.second_opinion.name}) needs its own judge. Name "
            f"a judge in task.yaml: models: {{{SECOND}: provider/name}}. The judge must differ from the "
            "model that scores during the search."
        )
    client = _client(_model(models, spec, SECOND), spec, options)
    if judge is not None and judge.model is client.model and task.second_opinion == task.reward:
        raise UsageError(
            f"{task.name}: the second opinion would repeat the question that {client.model.address} "
            "already answers as judge. Name another model or another rubric."
        )
    return {SECOND: replace(client, counts_as="judge", writes=True, bound=spec.output_bound)}


def _embedding_client(
    task: Task, options: Options, method: str, task_spec: ModelSpec
) -> dict[str, ModelClient]:
    """The client of the embedding at an endpoint that the method's setting names, if it names one; its calls count as the
    optimizer's. It is reached as the task model where both are of one provider, unless the task says otherwise."""
    address = _embedding_address(task, options, method)
    if address == NONE:
        return {}
    from whet.models.embeddings import EmbeddingModel, at_provider

    if not at_provider(address):
        return {}
    spec = _role_spec(task, EMBEDDING, address, options)
    beside = task_spec.address or ""
    if beside and split_address(address)[0] == split_address(beside)[0]:
        names = [
            name for name in ("base_url", "key_variable", "headers", "timeout") if not getattr(spec, name)
        ]
        shared = {name: getattr(task_spec, name) for name in names}
        spec = replace(spec, **shared, overrides=spec.overrides | (task_spec.overrides & set(names)))
    client = _client(EmbeddingModel(model_of(spec, EMBEDDING)), spec, options)
    return {EMBEDDING: replace(client, counts_as="optimizer")}


def _embedding_address(task: Task, options: Options, method: str) -> str:
    """The setting `embedding` of the method; `none` for a method without such a setting."""
    usual = getattr(get_method(method).config, EMBEDDING, NONE)
    own = task.settings if options.method in (None, task.method) else {}
    settings = {EMBEDDING: usual, **own, **options.settings}
    has = any(field.name == EMBEDDING for field in fields(get_method(method).config))
    return (
        str(getattr(options.config, EMBEDDING, NONE) if options.config else settings[EMBEDDING])
        if has
        else NONE
    )


def _role_spec(
    task: Task, role: str, choice: ModelChoice | Mapping[str, object] | None, options: Options
) -> ModelSpec:
    """The spec of a role beside the task model."""
    beside = changed_spec(task.models["task"], options.lm, "task")
    spec = changed_spec(task.models.get(role, ModelSpec()), choice, role)
    return with_base_url(spec, options.base_url, beside) if spec.named else spec


def _model(models: Models, spec: ModelSpec, role: str) -> LanguageModel:
    """The model of a spec; roles whose models are reached and asked alike share one."""
    key = model_key(spec, role)
    if key not in models:
        models[key] = model_of(spec, role)
    return models[key]


def _generation(spec: ModelSpec, limits: Budget) -> Generation:
    """The generation options of the task model. Under a limit on tokens or cost, every answer needs a bound that can be
    reserved."""
    bound = spec.output_bound
    if bound is None and (limits.tokens is not None or limits.cost_usd is not None):
        bound = BOUND_UNDER_LIMIT
    temperature = Generation().temperature if spec.temperature is None else spec.temperature
    return Generation(temperature, bound, spec.stop, thoughts=spec.thoughts)


def _client(model: LanguageModel, spec: ModelSpec, options: Options) -> ModelClient:
    concurrency = options.concurrency or spec.concurrency or DEFAULT_CONCURRENCY
    if concurrency < options.share:
        raise UsageError(
            f"{parameter('jobs', options.share)}: {model.address} takes "
            f"{quantity(concurrency, 'call')} at once ({parameter('concurrency', concurrency)}), but "
            "each job needs at least one call. Allow more calls, or set fewer jobs."
        )
    limiter = AdaptiveLimiter(concurrency // options.share)
    rate = spec.requests_per_minute
    rate = None if rate is None else rate / options.share
    client = ModelClient(model, limiter, spec.price, rate)
    wait = options.max_wait
    return client if wait is None else replace(client, max_wait=wait, unnamed_wait=wait)


def _check_prices(clients: Mapping[str, ModelClient], limits: Budget) -> None:
    if limits.cost_usd is None:
        return
    for role, client in clients.items():
        if client.price is None and not client.model.local:
            raise UsageError(
                f"{parameter('budget.cost_usd')} needs the price of {client.model.address} (role "
                f"{role}). Set the price in task.yaml: models: {{{role}: {{price: {{input: USD, output: "
                f'USD}}}}}} per million tokens; in Python {"lm" if role == "task" else role + "_lm"}={{"address": '
                '..., "price": {"input": USD, "output": USD}}.'
            )
