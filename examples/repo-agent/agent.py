"""An agent in thirty lines: reads its skill, asks a model for a file, and repairs it once if Python cannot read it."""

import json
import os
import sys
import urllib.request
from pathlib import Path

name, request = sys.argv[1:]
skill = Path(".agents/SKILL.md").read_text("utf-8").split("---", 2)[2]
messages = [{"role": "system", "content": skill}, {"role": "user", "content": f"Write {name}.py: {request}"}]


def ask() -> str:
    body = json.dumps({"model": os.environ["OPENAI_MODEL"], "messages": messages}).encode()
    headers = {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}", "Content-Type": "application/json"}
    url = f"{os.environ['OPENAI_BASE_URL']}/chat/completions"
    with urllib.request.urlopen(urllib.request.Request(url, body, headers)) as reply:
        text = json.load(reply)["choices"][0]["message"]["content"]
    messages.append({"role": "assistant", "content": text})
    return text.partition("```")[2].partition("\n")[2].partition("```")[0] or text


code = ask()
try:
    compile(code, f"{name}.py", "exec")
except SyntaxError as error:
    messages.append(
        {"role": "user", "content": f"Python cannot read it: {error}. Write the whole file again."}
    )
    code = ask()
Path(f"{name}.py").write_text(code, "utf-8")
print(code)
