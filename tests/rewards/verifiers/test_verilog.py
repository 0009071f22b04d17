"""Verilog: designs simulated by Icarus with the test bench of their row, and built by Yosys; where these are installed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.rewards.verifiers.grading import grade

from whet._util.confined import Limits, is_enforced, run_confined
from whet.errors import UsageError
from whet.rewards.verifiers import verilog
from whet.rewards.verifiers.verilog import Verilog

needs_icarus = pytest.mark.skipif(
    not (is_enforced() and shutil.which("iverilog") and shutil.which("vvp")),
    reason="needs Icarus Verilog, and Linux with Landlock: apt install iverilog",
)
needs_yosys = pytest.mark.skipif(not shutil.which("yosys"), reason="needs Yosys: apt install yosys")

PORTS = "module half(input a, input b, output s, output c);"
GOOD = f"{PORTS} assign s = a ^ b; assign c = a & b; endmodule"
BENCH = """\
module tb;
  reg a, b; wire s, c; integer i;
  half h(a, b, s, c);
  initial begin
    $display("1..4");
    for (i = 0; i < 4; i = i + 1) begin
      {a, b} = i[1:0]; #1;
      if ({c, s} === a + b) $display("ok %b + %b", a, b);
      else $display("not ok %b + %b: got %b", a, b, {c, s});
    end
  end
endmodule
"""
WAITS = """\
module tb;
  wire s; half h(1'b1, 1'b0, s, );
  initial begin @(posedge s); $display("ok"); end
endmodule
"""
ROW = {"bench": BENCH}


@needs_icarus
@pytest.mark.parametrize(
    ("answer", "value", "says"),
    [
        (GOOD, 1.0, ""),
        (f"Here it is:\n```verilog\n{GOOD}\n```\nIt adds.", 1.0, ""),
        (GOOD.replace("a ^ b", "a | b"), 0.75, "3 of 4 cases hold.\nnot ok 1 + 1: got 11."),
        (GOOD.replace("a ^ b", "q"), 0.0, "does not compile"),
        (GOOD.replace("half", "other"), 0.0, "half"),
        ("", 0.0, "empty"),
    ],
)
async def test_the_value_is_the_share_of_cases_that_hold(answer: str, value: float, says: str) -> None:
    graded = await grade("verilog", answer, ROW)
    assert graded.value == value and says in (graded.critique or ""), graded.critique


@needs_icarus
@pytest.mark.parametrize(
    "line",
    [
        'initial $display("ok");',
        "initial $finish;",
        '`include "/etc/passwd"',
        'integer f; initial f = $fopen("x", "w");',
        '`define D $disp``lay\ninitial `D("ok");',
    ],
)
async def test_a_design_that_calls_the_simulator_is_refused(line: str) -> None:
    graded = await grade("verilog", GOOD.replace("endmodule", f"{line} endmodule"), ROW)
    assert graded.value == 0.0 and "was refused" in str(graded.critique)
    assert (await grade("verilog", GOOD.replace("a ^ b", "$unsigned(a ^ b)"), ROW)).value == 1.0


@needs_icarus
async def test_cases_that_never_come_do_not_hold() -> None:
    never = f"{PORTS} assign s = 1'b0; assign c = 1'b0; endmodule"
    graded = await grade("verilog", never, {"bench": WAITS})
    assert graded.value == 0.0 and graded.critique == verilog.NO_CASE
    graded = await grade(
        "verilog", never, {"bench": WAITS.replace("initial begin", 'initial begin $display("1..2");')}
    )
    assert graded.value == 0.0 and "before the last case" in str(graded.critique)
    assert graded.parts == {"passed": 0.0, "cases": 2.0}


@needs_icarus
async def test_a_simulation_that_does_not_end_is_ended() -> None:
    loop = f"{PORTS} reg r; initial begin r = 0; while (1) r = ~r; end endmodule"
    graded = await grade({"verilog": {"timeout": 0.5}}, loop, ROW)
    assert graded.value == 0.0 and "does not end" in str(graded.critique)


@needs_icarus
def test_a_simulation_reads_and_writes_no_file_outside_its_folder(tmp_path: Path) -> None:
    """What the text of a design may not do, its simulation cannot do either."""
    (tmp_path / "secret").write_text("x")
    tasks = "".join(
        f'f = $fopen("{path}", "{mode}"); $display("{mode} %0d", f != 0);'
        for path, mode in (
            (tmp_path / "made", "w"),
            (tmp_path / "secret", "r"),
            ("/etc/passwd", "r"),
            ("own", "w"),
        )
    )
    design = f"{PORTS} integer f; initial begin {tasks} end endmodule"
    own = Verilog(str(shutil.which("iverilog")), str(shutil.which("vvp")))
    lines = own.simulate(design, BENCH)["output"].splitlines()[:4]
    assert lines == ["w 0", "r 0", "r 0", "w 1"] and not (tmp_path / "made").exists()


TRIES = """
import json, os, socket, subprocess, sys

def tried(act):
    try:
        act()
        return True
    except OSError:
        return False

parent = json.load(sys.stdin)
shell = "cat %s; echo x > %s" % (parent["secret"], parent["made"])
json.dump({
    "writes here": tried(lambda: open("own", "w").write("x")),
    "starts a tool": subprocess.run(["/bin/sh", "-c", "echo x > tool && cat tool"], capture_output=True).stdout == b"x\\n",
    "a tool reads outside": b"hidden" in subprocess.run(["/bin/sh", "-c", shell], capture_output=True).stdout,
    "reads outside": tried(lambda: open(parent["secret"]).read()),
    "removes outside": tried(lambda: os.remove(parent["secret"])),
    "opens a socket": tried(socket.socket),
    "signals": tried(lambda: os.kill(parent["pid"], 0)),
}, sys.stdout)
"""


@pytest.mark.skipif(not is_enforced(), reason="needs Linux with Landlock")
def test_what_tools_in_a_workspace_may_do(tmp_path: Path) -> None:
    program, secret, made = (tmp_path / name for name in ("program.py", "secret", "made"))
    program.write_text(TRIES)
    secret.write_text("hidden")
    payload = {"secret": str(secret), "made": str(made), "pid": os.getpid()}
    done = run_confined(
        program, payload, Limits(10.0), readable=[Path("/bin"), Path("/usr/bin")], workspace=True
    )
    assert [name for name, could in done.items() if could] == ["writes here", "starts a tool"]
    assert secret.exists() and not made.exists()


@needs_icarus
@needs_yosys
async def test_with_synthesis_a_circuit_must_be_built_of_it() -> None:
    spec = {"verilog": {"synthesis": True}}
    assert (await grade(spec, GOOD, ROW)).value == 1.0
    delays = f"{PORTS} reg r; initial #5 r = a ^ b; assign s = a ^ b; assign c = a & b; assign c = a & b & b; endmodule"
    assert (await grade("verilog", delays, ROW)).value == 1.0
    assert (await grade(spec, delays, ROW)).value == 0.0


@needs_icarus
@pytest.mark.parametrize("row", [{}, {"bench": ""}, {"bench": 3}])
async def test_a_row_without_a_bench_is_refused(row: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="no test bench in the column 'bench'"):
        await grade("verilog", GOOD, row)


async def test_tools_that_are_not_installed_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verilog, "is_enforced", lambda: True)
    monkeypatch.setattr(verilog.shutil, "which", lambda name: None)
    with pytest.raises(UsageError, match="iverilog and vvp and yosys cannot be found"):
        await grade({"verilog": {"synthesis": True}}, GOOD, ROW)
    monkeypatch.setattr(verilog, "is_enforced", lambda: False)
    with pytest.raises(UsageError, match="cannot deny files"):
        await grade("verilog", GOOD, ROW)
