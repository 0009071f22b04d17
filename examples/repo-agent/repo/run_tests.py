"""The tests of one helper: its results, and the rules of the repository."""

import importlib
import inspect
import json
import sys
from pathlib import Path

name = sys.argv[1]
sys.path.insert(0, ".")
sys.dont_write_bytecode = True
function = getattr(importlib.import_module(name), name)
faults = []
for arguments, expected in json.loads(Path(f"tests/{name}.json").read_text("utf-8")):
    result = function(*arguments)
    if result != expected:
        faults.append(f"{name}({', '.join(map(repr, arguments))}) must be {expected!r}; it is {result!r}.")
if not inspect.getdoc(function):
    faults.append(f"{name} has no docstring: every function of this repository has one.")
for parameter in inspect.signature(function).parameters.values():
    if parameter.annotation is parameter.empty:
        faults.append(f"The parameter {parameter.name} of {name} has no type: every parameter has one.")
sys.exit("\n".join(faults) or 0)
