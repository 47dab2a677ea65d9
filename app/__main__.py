"""`python -m app`: start the app in an existing environment and print its address.

It goes through Streamlit's own command line, so every `STREAMLIT_*` variable and option works (`App.run()` ignores
them). Streamlit gives up when a port that was named is busy; here the next free one is taken, and the address printed
is the one in use.
"""

import errno
import importlib.util
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parent.parent
SERVER = ROOT / "app" / "server.py"
NEEDED = ("streamlit", "plotly", "pandas", "torch", "transformers", "transformer_lens")
PORTS_TRIED = 100  # as many as Streamlit's own search
ANY_ADDRESS = ("0.0.0.0", "::")


def main(options: Sequence[str], target: Path = SERVER) -> int:
    """Serve `target` until Ctrl-C or SIGTERM.

    Args:
        options: what `streamlit run` takes after its file: `--server.port 9000`, `--help`, ...
        target: the file that holds the ASGI app.

    Returns:
        The exit code: 0 also when it was asked to stop.
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        return _complain(f"needs {missing[0]}; found {sys.executable} without it; run `make run`, which installs it.")
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    signal.signal(signal.SIGTERM, _stop)
    ours = target == SERVER and not {"--help", "-h"} & set(options)
    try:
        if ours:
            _start_backend()
        return _serve(options, target)
    except ValueError as error:
        return _complain(str(error))
    except KeyboardInterrupt:
        return 0
    finally:
        if ours:
            _end_backend()


def free_port(address: str, first: int) -> int:
    """The first port from `first` on that can be bound on `address`; 0 lets the system choose one.

    Raises:
        ValueError: `first` is no port, `address` is not one of this machine, or no port is free.
    """
    if not 0 <= first < 2**16:
        raise ValueError(f"needs a port from 0 to 65535; found {first}; name another with --server.port.")
    last = min(first + PORTS_TRIED, 2**16) - 1
    for port in range(first, last + 1):
        try:
            return _bind(address, port)
        except OSError as error:  # EACCES: ports below 1024 belong to root
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                message = f"needs an address of this machine; found {address} ({error.strerror}); set --server.address."
                raise ValueError(message) from error
    raise ValueError(
        f"needs a free port from {first} to {last} on {address}; found none; stop another server or set --server.port."
    )


def web_address(address: str, port: int, *, path: str = "", secure: bool = False) -> str:
    """What to type into a browser on this machine; `path` is server.baseUrlPath."""
    host = "127.0.0.1" if address in ANY_ADDRESS else address
    host = f"[{host}]" if ":" in host else host
    return f"{'https' if secure else 'http'}://{host}:{port}" + (f"/{path.strip('/')}" if path.strip("/") else "")


def _start_backend() -> None:
    """The model's process starts before Streamlit is imported: both take seconds, on two cores at the same time."""
    from app.backend import get_backend

    get_backend()


def _end_backend() -> None:
    from app.backend import use_backend

    use_backend(None)


def _serve(options: Sequence[str], target: Path) -> int:
    """Let Streamlit parse the options, settle the port, print the address, and hand over to Streamlit."""
    import click
    from streamlit import config
    from streamlit.web import bootstrap
    from streamlit.web.cli import main_run

    try:
        context = main_run.make_context("python -m app", [str(target), *options])
        config._main_script_path = str(target)  # as `streamlit run` does: the configuration lies beside the script
        flags = {name: value for name, value in context.params.items() if name not in ("target", "args")}
        bootstrap.load_config_options(flag_options=flags)
        address = config.get_option("server.address") or ANY_ADDRESS[0]
        port = free_port(address, config.get_option("server.port"))
        _say(_announcement(address, port))
        context.params.update(server_port=port, logger_hideWelcomeMessage=True)
        config._config_options = None  # else Streamlit, reading them again, warns that the port has changed
        with context:
            main_run.invoke(context)
    except click.exceptions.Exit as done:  # --help
        return done.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    return 0


def _announcement(address: str, port: int) -> str:
    """One line with the address for this machine and, when others may connect, the one for them."""
    from streamlit import config, net_util

    path, secure = config.get_option("server.baseUrlPath"), bool(config.get_option("server.sslCertFile"))
    line = f"Streamscope: {web_address(address, port, path=path, secure=secure)}"
    outside = config.get_option("browser.serverAddress") if config.is_manually_set("browser.serverAddress") else None
    if address in ANY_ADDRESS:
        outside = outside or net_util.get_internal_ip()
    return f"{line} (other machines: {web_address(outside, port, path=path, secure=secure)})" if outside else line


def _bind(address: str, port: int) -> int:
    """Bind and listen as Streamlit does, and let go again; returns the port, which matters for 0."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((address, port))
        probe.listen()
        return probe.getsockname()[1]


def _stop(_signal: int, _frame: FrameType | None) -> None:
    """SIGTERM before, or (uvicorn raises it again) after the server's own orderly end."""
    raise SystemExit(0)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _complain(sentence: str) -> int:
    sys.stderr.write(f"Streamscope {sentence}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
