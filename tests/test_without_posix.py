"""What whet does on a system without POSIX, as far as that can be seen on another one: it is imported, and evaluates and serves.

The modules and functions that Windows lacks are taken away in a process of its own.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TAKEN = """\
import asyncio, concurrent.futures, multiprocessing.connection, os, shutil, signal, ssl, subprocess, sys, tempfile, threading
for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None
for name in ("SIGALRM", "SIGCHLD", "SIGHUP", "SIGKILL", "SIGUSR1", "SIGXCPU", "ITIMER_REAL", "pthread_kill", "setitimer"):
    delattr(signal, name)
for name in ("fork", "geteuid", "getuid", "killpg", "mkfifo", "register_at_fork", "setsid", "sysconf"):
    delattr(os, name)
"""
EVALUATES = """\
import whet.cli.main
import whet
rows = [{"input": f"q{n}", "target": "yes"} for n in range(9)]
def reward(example, output):
    return float(output == example["target"])
found = whet.evaluate("Say {{input}}", lm=lambda messages: "yes", data=rows, reward=reward, progress=False)
print(found.score.mean)
"""
SERVES = """\
import urllib.request, whet_live.cli.serve, whet_live.server.run as server
options = server.ServeOptions(port=0, database="sqlite:///serve.db")
def stop(address):
    while True:
        try:
            urllib.request.urlopen(address)
            break
        except urllib.error.HTTPError:
            break
        except OSError as error:
            print(error, file=sys.stderr)
    signal.raise_signal(signal.SIGTERM)
def say(line):
    print(line)
    if line.startswith("whet serves at "):
        threading.Thread(target=stop, args=(line.split()[-1],), daemon=True).start()
server.serve(options, say, lambda line: None)
"""


def run(code: str, folder: Path) -> str:
    words = [sys.executable, "-W", "ignore", "-c", TAKEN + code]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_evaluation_needs_nothing_of_posix(tmp_path: Path) -> None:
    assert run(EVALUATES, tmp_path) == "1.0\n"


def test_a_server_needs_nothing_of_posix(tmp_path: Path) -> None:
    assert "whet serves at http://127.0.0.1:" in run(SERVES, tmp_path)
