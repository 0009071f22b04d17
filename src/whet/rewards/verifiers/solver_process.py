"""Run in a confined process: solves a linear program with HiGHS (SciPy), or checks SMT-LIB with Z3.

It imports nothing of whet. In: `linear` (numbers, to be minimised) or `smt` (text), `seconds`. Out: `status` (optimal,
infeasible, unbounded, sat, unsat, unknown) and `value`; or `fault`.
"""

import json
import sys
from typing import Any


def main() -> None:
    """Read the model, write what the solver says."""
    question = json.load(sys.stdin)
    solve = _solve if "linear" in question else _check
    json.dump(solve(question), sys.stdout)


def _solve(question: dict[str, Any]) -> dict[str, Any]:
    import numpy as np
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import lil_array

    model = question["linear"]
    matrix = lil_array((len(model["rows"]), len(model["cost"])))
    for row, (terms, _, _) in enumerate(model["rows"]):
        for column, value in terms:
            matrix[row, column] += value
    rows = [ends for _, *ends in model["rows"]]
    lows, highs = ([_end(pair[k], sign) for pair in rows] for k, sign in ((0, -np.inf), (1, np.inf)))
    bounds = Bounds(
        [_end(low, -np.inf) for low, _ in model["bounds"]],
        [_end(high, np.inf) for _, high in model["bounds"]],
    )
    result = milp(
        model["cost"],
        integrality=np.array(model["whole"], dtype=int),
        bounds=bounds,
        constraints=[LinearConstraint(matrix.tocsr(), lows, highs)] if rows else [],
        options={"time_limit": question["seconds"], "mip_rel_gap": 1e-9},
    )
    status = {0: "optimal", 2: "infeasible", 3: "unbounded"}.get(result.status)
    if status is None:
        return {"fault": f"HiGHS says: {result.message}"}
    return {"status": status, "value": float(result.fun) if status == "optimal" else None}


def _end(value: Any, default: float) -> float:
    return default if value is None else float(value)


def _check(question: dict[str, Any]) -> dict[str, Any]:
    import z3

    solver = z3.Solver()
    solver.set("timeout", max(1, int(1000 * question["seconds"])))
    try:
        solver.from_string(question["smt"])
        return {"status": str(solver.check()), "value": None}
    except z3.Z3Exception as error:
        return {"fault": f"Z3 says: {' '.join(str(error.value).split())[:300]}"}


if __name__ == "__main__":
    main()
