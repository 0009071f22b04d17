"""Run within limits: becomes the command that `WHET_COMMAND` holds as JSON. Standard error joins its standard output."""

import json
import os


def main() -> None:
    """Become the command."""
    command = json.loads(os.environ.pop("WHET_COMMAND"))
    os.dup2(1, 2)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
