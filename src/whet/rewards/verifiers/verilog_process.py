"""Run in a workspace: compiles a design with its test bench, simulates both, and tells what the tools wrote."""

import json
import subprocess
import sys

KEPT = 100_000


def run_tool(*command: str) -> tuple[int, str]:
    """The exit code of a tool, and what it wrote."""
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    return done.returncode, done.stdout.decode("utf-8", "replace")[:KEPT]


def main() -> None:
    """Read the sources as JSON, and write what became of them as JSON."""
    question = json.load(sys.stdin)
    for name in ("design", "bench"):
        with open(f"{name}.v", "w", encoding="utf-8") as file:
            file.write(question[name])
    result = {"fault": "", "output": ""}
    if question["yosys"]:
        code, output = run_tool(
            question["yosys"], "-q", "-p", "read_verilog -sv design.v; synth; check -assert"
        )
        result["fault"] = output or "no reason was given" if code else ""
    if not result["fault"]:
        code, output = run_tool(question["iverilog"], "-g2012", "-o", "simulation", "design.v", "bench.v")
        result["fault"] = output or "no reason was given" if code else ""
    if not result["fault"]:
        code, result["output"] = run_tool(question["vvp"], "-n", "simulation")
        result["fault"] = f"the simulation was ended by the signal {-code}" if code < 0 else ""
    json.dump(result, sys.stdout)


if __name__ == "__main__":
    main()
