"""Run in a confined process: paints an SVG picture as a PNG file.

In: `{"svg", "width"}`; out: `{"png"}` in base64, or `{"fault"}`.

Confined, it reads no file and no address that the picture names, and no font of the machine: texts are not painted.
"""

from __future__ import annotations

import base64
import json
import sys


def main() -> None:
    """Answer one question."""
    import resvg_py

    question = json.load(sys.stdin)
    try:
        file = resvg_py.svg_to_bytes(
            svg_string=question["svg"], width=question["width"], background="white", skip_system_fonts=True
        )
    except ValueError as error:
        json.dump({"fault": str(error)}, sys.stdout)
    else:
        json.dump({"png": base64.b64encode(bytes(file)).decode()}, sys.stdout)


if __name__ == "__main__":
    main()
