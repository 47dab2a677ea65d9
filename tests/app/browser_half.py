"""The browser's half of a component, run by node where there is one, else by Chromium: the same text the page loads."""

import base64
import json
import shutil
import subprocess
import sys


def evaluate(source, expression, name="js"):
    """The value of a JavaScript expression that sees what `source` exports as `name`."""
    url = f"data:text/javascript;base64,{base64.b64encode(source.encode()).decode()}"
    program = f"import('{url}').then(async ({name}) => JSON.stringify(await ({expression})))"
    if not shutil.which("node"):
        return json.loads(in_chromium(program))
    line = ["node", "--input-type=module"]
    # Through standard input: a command line has room for 128 KB.
    done = subprocess.run(
        line, input=f"{program}.then(console.log)", capture_output=True, text=True, check=True, timeout=60
    )
    return json.loads(done.stdout)


def in_chromium(program):
    """What a JavaScript promise gives in the browser of the tests."""
    from tests.browser.chromium import find_browser, launch_arguments

    # A child, because Playwright's loop cannot run twice in one process.
    child = (
        "import sys, json; from playwright.sync_api import sync_playwright\n"
        "path, arguments, program = json.load(sys.stdin)\n"
        "with sync_playwright() as p:\n"
        "    browser = p.chromium.launch(executable_path=path, args=arguments)\n"
        "    sys.stdout.write(browser.new_page().evaluate(program)); browser.close()\n"
    )
    question = json.dumps([find_browser(), launch_arguments(), program])
    line = [sys.executable, "-c", child]
    return subprocess.run(line, input=question, capture_output=True, text=True, check=True, timeout=120).stdout
