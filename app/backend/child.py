"""The child process that owns the model: `python -m app.backend.child JSON`, started by app/backend/transports.py."""

import json
import logging
import os
import signal
import sys
from multiprocessing.connection import Connection


def main(arguments: str) -> None:
    """Serve one connection; end as soon as it closes, whatever the model is doing."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole terminal; the server decides when we end
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    from app.backend.codec import Wire
    from app.backend.service import Service

    order = json.loads(arguments)
    service = Service(Wire(Connection(order["fd"])), order, transport="process")
    service.serve(on_death=lambda: os._exit(70))  # EX_SOFTWARE: the server sees the end of the wire and starts another
    os._exit(0)  # the owner thread may be inside a long operation; there is nothing to clean up


if __name__ == "__main__":
    main(sys.argv[1])
