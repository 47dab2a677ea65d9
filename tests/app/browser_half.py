"""The browser's half of a component, run by the node that Playwright brings along: the same text the page loads."""

import base64
import json
import subprocess
from pathlib import Path

import playwright

# 0.1 s a call; a Chromium of its own for each of forty calls took minutes.
NODE = Path(playwright.__file__).parent / "driver" / "node"


def evaluate(source, expression, name="js"):
    """The value of a JavaScript expression that sees what `source` exports as `name`."""
    url = f"data:text/javascript;base64,{base64.b64encode(source.encode()).decode()}"
    program = f"import('{url}').then(async ({name}) => JSON.stringify(await ({expression}))).then(console.log)"
    line = [NODE, "--input-type=module"]
    # Through standard input: a command line has room for 128 KB.
    done = subprocess.run(line, input=program, capture_output=True, text=True, check=True, timeout=60)
    return json.loads(done.stdout)
