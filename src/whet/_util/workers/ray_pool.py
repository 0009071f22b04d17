"""Workers on a Ray cluster: as many actors as wanted, each with one worker process beside it.

Ray places the actors and notices the death of machines; it repeats nothing (the run does, see `Elsewhere`). An actor joins once
it has loaded the user's code and found around it what this machine has. An actor that is lost is replaced where the cluster has
room.
"""

from __future__ import annotations

import asyncio
import importlib
import itertools
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

from whet._util.user_code import ENDED_AFTER, working_folder
from whet._util.user_modules import is_installed
from whet._util.workers import Work
from whet._util.workers.elsewhere import DEATHS, Talk, WorkerDied
from whet._util.workers.pool import Processes, share_threads
from whet._util.workers.ray_actor import RayActor, Reply
from whet._util.workers.ray_cluster import RayCluster, connect_to_ray, describe_ray_error
from whet._util.workers.sent_files import Parts, SentFiles, show_bytes
from whet._util.workers.surroundings import Surroundings, compare_surroundings, make_inspection
from whet.errors import UsageError, parameter, quantity

JOINING_SECONDS = 60.0
"""The longest wait for all workers when a run starts, in seconds. The run goes on with the workers that are there then."""
LOST = 20
"""Actors that may be lost before they have joined, over a run; at its start, `DEATHS` end it."""
_MIB = 1024 * 1024


@dataclass(eq=False)
class _Member:
    """An actor that has joined. `node`: the address of its machine."""

    actor: Any
    node: str
    talks: int = 0


@dataclass(frozen=True)
class ModelCopies:
    """Actors with a model, and without code of the user. `gpus`: the share of a GPU for each; None: a whole one, if the
    cluster has any. They take no processors of their own: the actors with the user's code wait while they compute. `files`: what
    each reads, which machines that lack it get from this one; None: a part of a package, or what each loads itself."""

    gpus: float | None
    files: SentFiles | None = None

    def resources(self, cluster: RayCluster) -> dict[str, float]:
        """The share of a cluster that one actor takes. Raises UsageError if GPUs are wanted and the cluster has none."""
        if self.gpus and not cluster.gpus:
            raise UsageError(
                f"{parameter('worker_gpus', self.gpus)}: the Ray cluster at {cluster.address} has no GPU. Leave it out, or set "
                "it to 0."
            )
        whole = 1.0 if cluster.gpus else 0.0
        return {"num_cpus": 0, "num_gpus": whole if self.gpus is None else self.gpus}


class RayWorkers:
    """See `Workers`: `count` actors on the cluster of that engine (`ray` or `ray://HOST:PORT`), by default a share of one in
    `share` of its processors, or of its GPUs where they take these. `memory`: MiB that each may have; 0: no limit. `say` is told
    what the user should know."""

    def __init__(
        self,
        engine: str,
        count: int | None,
        memory: int,
        share: int,
        say: Callable[[str], None],
        copies: ModelCopies | None = None,
    ) -> None:
        self._engine, self._wanted, self._memory, self._share, self._say = engine, count, memory, share, say
        self._copies = copies
        self._resources: dict[str, float] = {"num_cpus": 1}
        self._place: dict[str, str] | None = None
        self._cluster: RayCluster | None = None
        self._idle: asyncio.Queue[_Member] = asyncio.Queue()
        self._members: set[_Member] = set()
        self._joining: dict[asyncio.Task[None], Any] = {}
        self._inspection = b""
        self._here: Surroundings | None = None
        self._refusals: list[str] = []
        self._started, self._lost = False, 0
        self._numbers, self._connecting = itertools.count(), asyncio.Lock()
        self._parts: Parts | None = None
        self._putting, self._receiving, self._until = asyncio.Lock(), 0, 0.0
        self._supplied: set[str] = set()
        self._placed = Counter[str]()

    async def prepare(self, make_works: Callable[[], Sequence[Work]]) -> None:
        """See `Executor`. Connects to the cluster, if there is anything to do on it."""
        works = make_works()
        if not works:
            self._say(f"no code of this task runs on {self._engine}: it has no function of Python")
            return
        self._inspection = _to_bytes(make_inspection([asdict(work) for work in works]))
        self._here = await self._inspect_here()
        self._cluster = connect_to_ray(self._engine)
        count = self._choose_count(self._cluster)
        for _ in range(count):
            self._begin_joining()
        self._until = time.monotonic() + JOINING_SECONDS
        while self._joining and not self._refusals and (left := self._seconds_left()) > 0:
            await asyncio.wait(list(self._joining), timeout=left, return_when=asyncio.FIRST_COMPLETED)
        if self._refusals:
            raise UsageError(self._refusals[0])
        if not self._members:
            raise UsageError(
                f"{parameter('engine', self._engine)}: the Ray cluster at {self._cluster.address} has started no worker in "
                f"{JOINING_SECONDS:g} s. Its {quantity(self._cluster.processors, 'processor')} may be taken by others: "
                "`ray status` shows by whom."
            )
        self._started = True
        if len(self._members) < count:
            self._say(
                f"{len(self._members)} of {quantity(count, 'worker')} on Ray are there; the others join later"
            )

    def _seconds_left(self) -> float:
        """How long to wait for actors that join; while a machine receives files, as long as that takes."""
        return JOINING_SECONDS if self._receiving else self._until - time.monotonic()

    @property
    def count(self) -> int:
        """The actors that are there."""
        return max(1, len(self._members))

    def _choose_count(self, cluster: RayCluster) -> int:
        """Choose the number of actors and the resources of each."""
        if self._copies is None:
            return self._wanted or max(1, cluster.processors // self._share)
        self._resources = self._copies.resources(cluster)
        gpus = self._resources["num_gpus"]
        room = int(cluster.gpus / gpus) if gpus else cluster.processors
        count = max(1, room // self._share)
        if self._wanted is not None:
            count = min(self._wanted, room) if gpus else self._wanted
        self._place = share_threads(max(count, cluster.processors), count)
        return count

    async def _inspect_here(self) -> Surroundings:
        """The surroundings of a worker process on this machine."""
        own = Processes(1)
        try:
            outcome = json.loads(await own.do(self._inspection, ENDED_AFTER))
        except WorkerDied as error:
            raise UsageError(f"A worker process that loads the code of this task {error}.") from None
        finally:
            await own.close()
        if "refused" in outcome:
            raise UsageError(f"A worker process cannot load the code of this task: {_refusal(outcome)}")
        return cast(Surroundings, outcome["value"])

    def _begin_joining(self) -> None:
        assert self._cluster is not None
        ray = self._cluster.ray
        resources = {**self._resources, **({"memory": self._memory * _MIB} if self._memory else {})}
        again = {"max_restarts": 0, "max_task_retries": 0}
        made = ray.remote(RayActor).options(scheduling_strategy=self._choose_place(), **resources, **again)
        actor = made.remote(self._memory, _own_places(), working_folder(), self._place)
        task = asyncio.ensure_future(self._join(actor))
        self._joining[task] = actor
        task.add_done_callback(self._end_joining)

    def _choose_place(self) -> Any:
        """Choose the node of the next actor. Ray spreads what takes processors or GPUs, and may put all else on one node."""
        assert self._cluster is not None
        node = None if any(self._resources.values()) else self._cluster.choose_node(self._placed)
        if node is None:
            return "SPREAD"
        self._placed[node] += 1
        places = importlib.import_module("ray.util.scheduling_strategies")
        return places.NodeAffinitySchedulingStrategy(node, soft=True)

    def _end_joining(self, task: asyncio.Task[None]) -> None:
        self._joining.pop(task, None)
        if not self._joining:
            self._parts = None  # the store may forget the files: all machines have them

    async def _join(self, actor: Any) -> None:
        """Let an actor work, if it finds what this machine has."""
        assert self._cluster is not None and self._here is not None
        node = "a node"
        try:
            node = await self._wait(actor.find_node.remote())
            if why := await self._supply_files(actor, node):
                self._refuse(actor, f"{node} of the Ray cluster: {why}.")
                return
            tag, value = await self._wait(actor.do.remote(self._inspection, ENDED_AFTER))
        except WorkerDied as error:
            self._lost += 1
            # Something may end an actor at any time, and Ray may place one on a node that is dead and that it has not missed yet.
            if self._lost < (LOST if self._started else DEATHS):
                self._begin_joining()
            else:
                self._refuse(actor, f"{node} of the Ray cluster: the worker there {error}")
            return
        outcome = json.loads(value) if tag == "done" else {"refused": value or "it does not end", "kind": ""}
        if "refused" in outcome:
            self._refuse(
                actor,
                f"{node} of the Ray cluster cannot load the code of this task: {_refusal(outcome)} All nodes need its files at "
                "the same place, as in a folder that they share, and its packages.",
            )
        elif differences := compare_surroundings(self._here, cast(Surroundings, outcome["value"])):
            self._refuse(
                actor,
                f"{node} of the Ray cluster differs from this machine: {', '.join(differences)}. Install the same there.",
            )
        else:
            member = _Member(actor, node)
            self._members.add(member)
            self._idle.put_nowait(member)

    async def _supply_files(self, actor: Any, node: str) -> str:
        """Let the machine of an actor have the files of the model, from this one if it lacks them. The reason where it cannot."""
        files = None if self._copies is None else self._copies.files
        if files is None or self._cluster is None or await self._wait(actor.find_files.remote(files)):
            return ""
        ray = self._cluster.ray
        self._receiving += 1
        try:
            async with self._putting:
                if self._parts is None:
                    self._parts = await asyncio.to_thread(files.put, ray)
            if node not in self._supplied:
                self._supplied.add(node)
                self._say(
                    f"{node} of the Ray cluster gets {show_bytes(files.size)} of {files.place} from this machine"
                )
            return cast(str, await self._wait(actor.keep_files.remote(files, self._parts)))
        except (OSError, ray.exceptions.RayError) as error:
            return f"{files.place} cannot be sent there: {describe_ray_error(error)}"
        finally:
            self._receiving -= 1
            self._until = time.monotonic() + JOINING_SECONDS

    def _refuse(self, actor: Any, why: str) -> None:
        """At the start an actor that cannot be used ends the run, before anything is paid; later the others go on."""
        self._refusals.append(why)
        if self._cluster is not None:
            self._cluster.ray.kill(actor)
        if self._started:
            self._say(f"warning: a worker on Ray was not replaced: {why}")

    async def _wait(self, reference: Any) -> Any:
        """The result of a call of an actor. Raises WorkerDied if the actor is lost. A call is cancelled with its wait."""
        assert self._cluster is not None
        ray = self._cluster.ray
        waiting = asyncio.wrap_future(reference.future())
        try:
            return await asyncio.shield(waiting)
        except asyncio.CancelledError:
            waiting.add_done_callback(lambda done: done.cancelled() or done.exception())
            ray.cancel(reference)
            raise
        except ray.exceptions.RayError as error:
            raise WorkerDied(f"was lost with its actor ({describe_ray_error(error)})") from None

    async def call(self, member: _Member, reference: Any) -> Any:
        """The value that a call of a member brings. Raises TimeoutError and WorkerDied; a member that is lost is replaced."""
        try:
            tag, value = cast(Reply, await self._wait(reference))
        except WorkerDied:
            self._replace(member)
            raise
        if tag == "late":
            raise TimeoutError
        if tag == "died":
            raise WorkerDied(value)
        return value

    def _replace(self, member: _Member) -> None:
        if member in self._members and self._cluster is not None:
            self._members.discard(member)
            self._cluster.ray.kill(member.actor)
            self._say(
                f"warning: a worker on {member.node} of the Ray cluster was lost; its work is done again"
            )
            self._begin_joining()

    async def _connect(self, work: bytes) -> None:
        """Prepare for work that nobody announced."""
        async with self._connecting:
            if self._cluster is None:
                await self.prepare(lambda: [Work(**json.loads(work))])

    async def do(self, work: bytes, seconds: float) -> bytes:
        """See `Workers`."""
        await self._connect(work)
        member = await self._take()
        try:
            return cast(bytes, await self.call(member, member.actor.do.remote(work, seconds)))
        finally:
            if member in self._members:
                self._idle.put_nowait(member)

    async def _take(self) -> _Member:
        """A member that does nothing. Raises UsageError where none is left, and none comes."""
        while True:
            try:
                member = await asyncio.wait_for(self._idle.get(), JOINING_SECONDS)
            except TimeoutError:
                if self._members or self._receiving:
                    continue
                why = self._refusals[-1] if self._refusals else "Ray has started no other one."
                raise UsageError(
                    f"{parameter('engine', self._engine)}: all workers are lost. {why} What was recorded is kept: run the same "
                    "command again when the cluster is there, or with another engine."
                ) from None
            if member in self._members:
                return member

    async def open(self, work: bytes, alone: bool) -> Talk:
        """See `Workers`."""
        await self._connect(work)
        member = min(self._members, key=lambda one: one.talks, default=None)
        if member is None:
            member = await self._take()
            self._idle.put_nowait(member)
        number = next(self._numbers)
        talk = _RayTalk(self, member, number)
        member.talks += 1
        try:
            await self.call(member, member.actor.open.remote(number, work, alone))
        except BaseException:
            await talk.end(False)
            raise
        return talk

    async def close(self) -> None:
        """See `Executor`."""
        cluster, self._cluster, self._parts = self._cluster, None, None
        if cluster is None:
            return
        joining = dict(self._joining)
        for task in joining:
            task.cancel()
        if cluster.ray.is_initialized():  # else who made the connection has ended it, and all actors with it
            for actor in [*joining.values(), *(member.actor for member in self._members)]:
                cluster.ray.kill(actor)
        self._members.clear()
        await asyncio.gather(*joining, return_exceptions=True)
        cluster.close()


@dataclass(eq=False)
class _RayTalk:
    """See `Talk`."""

    workers: RayWorkers
    member: _Member
    number: int
    _ended: bool = field(default=False, init=False)

    async def next(self) -> dict[str, Any]:
        reference = self.member.actor.next.remote(self.number)
        message: dict[str, Any] = json.loads(await self.workers.call(self.member, reference))
        return message

    async def send(self, number: int, key: str, value: Any) -> None:
        await self.workers.call(
            self.member, self.member.actor.send.remote(self.number, number, key, json.dumps(value))
        )

    async def end(self, late: bool) -> None:
        if not self._ended:
            self._ended = True
            self.member.talks -= 1
            self.member.actor.end.remote(self.number, late)


def _to_bytes(work: Work) -> bytes:
    return json.dumps(asdict(work)).encode()


def _own_places() -> list[str]:
    """The entries of the import path that hold the user's files: what they hold is imported from there on other machines too."""
    places = [Path(place or ".").resolve() for place in sys.path]
    return [str(place) for place in places if not is_installed(str(place / "module.py"))]


def _refusal(outcome: dict[str, Any]) -> str:
    plain = outcome["kind"] in ("", UsageError.__name__)
    text = outcome["refused"] if plain else f"{outcome['kind']}: {outcome['refused']}"
    return text if text.endswith(".") else f"{text}."
