"""A Hugging Face hub on loopback: enough of its API for one tiny model, and each of its ways to say no.

Repositories: tiny/model; tiny/slow (its weights stop half-way until `go` is set); tiny/gated; tiny/hangs (no answer
until `go` is set); tiny/pickle (no safetensors); tiny/encoder (BERT); tiny/custom (code); tiny/gguf;
tiny/big (10 MB of config.json); any other name is missing.
"""

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlparse

import numpy as np
from safetensors.numpy import save

COMMIT = "c0ffee" + "0" * 34
CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 4}
# One safetensors file of 256 KB: several reads on the way, so that a cancel has a middle.
WEIGHTS = save({"w": np.arange(65536, dtype=np.float32)})
MODEL = {
    "config.json": json.dumps(CONFIG).encode(),
    "tokenizer.json": b'{"version": "1.0"}',
    "model.safetensors": WEIGHTS,
    "pytorch_model.bin": b"must never be asked for",
    "modeling.py": b"raise SystemExit('must never be asked for')",
    "README.md": b"# tiny",
}
PICKLE = {name: MODEL[name] for name in ("config.json", "tokenizer.json", "pytorch_model.bin")}
ENCODER = {**MODEL, "config.json": b'{"model_type": "bert", "architectures": ["BertForMaskedLM"]}'}
OWN = {"model_type": "own_design", "architectures": ["Own"], "auto_map": {"AutoModelForCausalLM": "modeling.Own"}}
CUSTOM = {**MODEL, "config.json": json.dumps(OWN).encode()}
REPOS = {
    "tiny/model": MODEL,
    "tiny/slow": MODEL,
    "tiny/gated": MODEL,
    "tiny/hangs": MODEL,
    "tiny/pickle": PICKLE,
    "tiny/encoder": ENCODER,
    "tiny/custom": CUSTOM,
    "tiny/gguf": {"model.gguf": b"GGUF"},
    "tiny/big": {**MODEL, "config.json": b" " * 10_000_001},
}


class StubHub:
    """`with StubHub() as hub:` serves at `hub.url`; `hub.asked` lists (method, path)."""

    def __init__(self):
        self.asked = []
        self.go = threading.Event()
        self.waiting = threading.Event()  # set when a request is being held back
        handler = type("Handler", (_Handler,), {"hub": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.go.set()
        self.server.shutdown()
        self.server.server_close()

    def fetched(self):
        """Names of the files that were really sent."""
        return {path.rsplit("/", 1)[1] for method, path in self.asked if method == "GET" and "/resolve/" in path}

    def hold(self):
        self.waiting.set()
        self.go.wait(60)


class _Handler(BaseHTTPRequestHandler):
    hub: StubHub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer()

    def do_GET(self):
        self.answer()

    def answer(self):
        url = urlparse(self.path)
        self.hub.asked.append((self.command, url.path))
        parts = [unquote(p) for p in url.path.strip("/").split("/")]
        about = parts[:2] == ["api", "models"]
        repo = "/".join(parts[2:4] if about else parts[:2])
        rest = parts[4:] if about else parts[2:]
        if repo == "tiny/hangs":
            self.hub.hold()
        files = REPOS.get(repo)
        if files is None:
            self.refuse(404, "RepoNotFound")
        elif len(rest) > 1 and rest[1] not in ("main", COMMIT):
            self.refuse(404, "RevisionNotFound")
        elif about and rest[:1] == ["tree"]:
            self.send_json([self.entry(name, data, "path") for name, data in files.items()])
        elif about:
            siblings = [self.entry(name, data, "rfilename") for name, data in files.items()]
            assert "blobs" in parse_qs(url.query)
            self.send_json({"id": repo, "sha": COMMIT, "siblings": siblings, "gated": repo == "tiny/gated"})
        elif repo == "tiny/gated":
            self.refuse(401, "GatedRepo")
        elif rest[2] not in files:
            self.refuse(404, "EntryNotFound")
        else:
            self.send_file(repo, files[rest[2]])

    @staticmethod
    def entry(name, data, key):
        return {key: name, "size": len(data), "blobId": hashlib.sha1(data).hexdigest(), "type": "file", "oid": "0" * 40}

    def refuse(self, status, code):
        self.send_body(status, b"{}", {"X-Error-Code": code, "X-Error-Message": code})

    def send_json(self, value):
        self.send_body(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def send_file(self, repo, data):
        headers = {"ETag": f'"{hashlib.sha256(data).hexdigest()}"', "X-Repo-Commit": COMMIT}
        held = repo == "tiny/slow" and self.command == "GET" and data is WEIGHTS
        self.send_body(200, data, headers, held=held)

    def send_body(self, status, body, headers, held=False):
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        try:
            if held:
                self.wfile.write(body[: len(body) // 2])
                self.wfile.flush()
                self.hub.hold()
                body = body[len(body) // 2 :]
            self.wfile.write(body)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the client was cancelled
