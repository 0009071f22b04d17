"""The reward that simulates the Verilog of an answer with the test bench of its row, by Icarus Verilog."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from whet._util.confined import Limits, OutOfBounds, is_enforced, run_confined
from whet.errors import UsageError, quantity
from whet.rewards.asking import RewardOptions
from whet.rewards.verifiers.measured import Measured
from whet.rewards.verifiers.reading import LONGEST_ANSWER, code_in, cut, flag_option, number_option
from whet.run import Run
from whet.types import JSON, Completion, Example, Reward

_PROCESS = Path(__file__).with_name("verilog_process.py")
_MOST_NAMED = 3
_CASE = re.compile(r"^(ok|not ok)\b.*$", re.MULTILINE)
_PLAN = re.compile(r"^1\.\.([0-9]{1,9})\s*$", re.MULTILINE)
_REACHES_OUT = re.compile(r"\$(?!(?:clog2|signed|unsigned|bits)\b)[^\s]{0,40}|`[ \t]*include\b|``")
"""The constructs that no synthesizable design needs: tasks of the simulator, other files, and names put together."""
NO_CASE = "No line `ok` or `not ok` came: the test bench writes none, or it waits for a signal that the design never gives."
_FENCES = "verilog", "systemverilog", "sv", "v"


@dataclass(frozen=True)
class Verilog(Measured):
    """The share of the cases of a row's test bench that hold in a simulation of the answer's design, 0 to 1.

    The design is the last fenced block, else the whole answer. The bench stands in the row's column `bench` and writes a line
    for each case, `ok ...` or `not ok ...`, and, first of all, `1..N` if there are N: cases that never come do not hold. A
    design that calls tasks of the simulator is refused, because it could write these lines itself. `synthesis`: Yosys must
    build a circuit of it too. The parts are `passed` and `cases`.
    """

    iverilog: str
    vvp: str
    yosys: str = ""
    bench: str = "bench"
    timeout: float = 10.0
    memory: int = 1024
    name: str = "verilog"
    low: float = 0.0
    high: float = 1.0
    needs: frozenset[str] = frozenset()

    denies = True

    @property
    def places(self) -> list[str]:
        """See `Measured`."""
        return [tool for tool in (self.iverilog, self.vvp, self.yosys) if tool]

    def check(self, example: Example) -> None:
        """Raise UsageError for a row without a bench."""
        bench = example.row.get(self.bench)
        if not isinstance(bench, str) or not bench.strip():
            raise UsageError(
                f"{example.place} has no test bench in the column {self.bench!r}: Verilog that writes `ok` or `not ok` for each "
                "case. Add it, or name the column: reward: {verilog: {bench: COLUMN}}."
            )

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        design = code_in(completion.text, _FENCES)
        if not design.strip() or len(design) > LONGEST_ANSWER:
            why = f"it is empty, or longer than {LONGEST_ANSWER:,} characters"
            return Reward(0.0, critique=f"The design was refused: {why}.")
        if (task := _REACHES_OUT.search(design)) is not None:
            return Reward(
                0.0,
                critique=f"The design was refused: it uses {cut(task[0])}, which only a test bench may. Leave it out.",
            )
        values: list[JSON] = [design, str(example.row[self.bench])]
        done = await self.compute(run, "simulate", values, example.place, [example.id, completion.text])
        if done["fault"]:
            return Reward(0.0, critique=f"The design does not compile or does not end: {cut(done['fault'])}.")
        cases, plan = list(_CASE.finditer(done["output"])), _PLAN.search(done["output"])
        if not cases and plan is None:
            return Reward(0.0, {"passed": 0.0, "cases": 0.0}, NO_CASE)
        failed = [case[0] for case in cases if case[1] != "ok"]
        of, passed = max(len(cases), int(plan[1]) if plan else 0), len(cases) - len(failed)
        parts = {"passed": float(passed), "cases": float(of)}
        if passed == of:
            return Reward(1.0, parts)
        lines = [
            f"{passed} of {quantity(of, 'case')} hold.",
            *(f"{cut(line)}." for line in failed[:_MOST_NAMED]),
        ]
        lines += ["The simulation ended before the last case."] if of > len(cases) else []
        return Reward(passed / of, parts, "\n".join(lines))

    def simulate(self, design: str, bench: str) -> dict[str, str]:
        """The output of the simulation, and the reason if there is none."""
        tools = {"iverilog": self.iverilog, "vvp": self.vvp, "yosys": self.yosys}
        folders = [Path(folder) for folder in ("/bin", "/usr/bin", "/usr/share")]
        folders += [Path(tool).resolve().parent.parent for tool in tools.values() if tool]
        try:
            return dict(
                run_confined(
                    _PROCESS,
                    {"design": design, "bench": bench, **tools},
                    Limits(self.timeout, self.memory),
                    readable=folders,
                    workspace=True,
                )
            )
        except OutOfBounds as error:
            return {"fault": f"the simulation was refused: {error}", "output": ""}


def build_verilog(options: RewardOptions) -> Verilog:
    """`reward: {verilog: {bench: COLUMN, synthesis: false, timeout: 10, memory: 1024}}`.

    Raises UsageError with the place, for tools that are not installed, and where files and network cannot be denied.
    """
    options.only("bench", "synthesis", "timeout", "memory")
    if not is_enforced():
        options.refuse(
            "this machine cannot deny files and network to a simulation: that takes Linux 5.13 with Landlock on x86-64. Run it "
            "there."
        )
    wanted = ["iverilog", "vvp"] + ["yosys"] * flag_option(options, "synthesis", False)
    paths = {name: shutil.which(name) for name in wanted}
    if missing := [name for name, path in paths.items() if path is None]:
        options.refuse(
            f"{' and '.join(missing)} cannot be found. Install Icarus Verilog (and Yosys for synthesis), such as by "
            "`apt install iverilog yosys`."
        )
    return Verilog(
        str(paths["iverilog"]),
        str(paths["vvp"]),
        str(paths.get("yosys") or ""),
        options.text("bench", "bench"),
        number_option(options, "timeout", 10.0, 600),
        int(number_option(options, "memory", 1024, 1 << 20)),
    )
