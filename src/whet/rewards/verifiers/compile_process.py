"""Run in a confined process: compiles Python, and executes nothing of it. In: `code`; out: `fault`."""

import json
import sys
import warnings


def main() -> None:
    """Read the code, write what is wrong with it."""
    fault = ""
    warnings.simplefilter("ignore")
    try:
        compile(json.load(sys.stdin)["code"], "<answer>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, OverflowError) as error:
        fault = f"{type(error).__name__}: {error}"
    json.dump({"fault": fault[:1000]}, sys.stdout)


if __name__ == "__main__":
    main()
