"""A backend without a model: a vocabulary of a few words and every byte, and logits that a reader can work out by hand.

After the tokens read so far, `target` = (3 * the sum of their ids + their number + 96) modulo the vocabulary, which is
" Paris" after "The capital of France is". The logit of id i is -((i - target) modulo the vocabulary) / 2. So `target` has
1 - exp(-1/2) = 39.3 %, the next id exp(-1/2) times as much, and so on (a geometric series whose entropy is 2.46 bits), and
every choice that changes a token changes the answer.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from analyses._steps import Cost, Profile
from analyses.model import Check, ModelConfig
from analyses.next_token import NextToken
from analyses.sampling import entropy_nats, log_softmax
from analyses.tokenization import Tokens
from analyses.vocabulary import Vocabulary
from app.backend.protocol import Event, ModelInfo, Refused, Request, Stats, Status, Who

BOS, END = "<s>", "<|endoftext|>"
WORDS = ["The", " capital", " of", " France", " is", " Paris", "strawberry", " straw", "berry"]
PIECES = [bytes([i]) for i in range(256)] + [BOS.encode(), END.encode()] + [word.encode() for word in WORDS]
IDS = {piece: i for i, piece in enumerate(PIECES)}
SPECIAL = {IDS[BOS.encode()], IDS[END.encode()]}
TURN = ("user: ", "\nassistant: ")  # the chat template, after its own BOS
N_CTX = 64


def model_info(name: str = "stub-model", **changes: Any) -> ModelInfo:
    """What a page is told about the model; `changes` go into its config."""
    config = {
        "name": name,
        "kind": "embedded",
        "revision": None,
        "note": "made by hand",
        "family": "llama",
        "architecture": "LlamaForCausalLM",
        "n_layers": 3,
        "n_heads": 6,
        "n_kv_heads": 2,
        "d_model": 48,
        "d_head": 8,
        "d_mlp": 128,
        "d_vocab": len(PIECES),
        "n_ctx": N_CTX,
        "tied": True,
        "norm": "RMSNorm",
        "positions": "rotary",
        "activation": "silu",
        "gated_mlp": True,
        "sliding_window": None,
        "logit_softcap": None,
        "n_parameters": 123_456,
        "device": "cpu",
        "dtype": "float32",
        "fingerprint": f"print of {name}",
    }
    checks = (
        Check("lens", True, 0.0, 1e-3, "The last row of the lens is the model's output."),
        Check("rows", False, 0.5, 1e-5, "Attention rows do not sum to one."),
    )
    vocabulary = Vocabulary(
        data=np.frombuffer(b"".join(PIECES), dtype=np.uint8),
        offsets=np.cumsum([0, *map(len, PIECES)], dtype=np.int64),
        special=np.isin(np.arange(len(PIECES)), list(SPECIAL)),
        byte_token=np.zeros(len(PIECES), dtype=bool),
        kind="byte-level BPE",
    )
    return ModelInfo(
        config=ModelConfig(**config | changes),
        capabilities={"pattern": "", "replay": "Blocks of this family cannot be run alone.", "resid_mid": ""},
        checks=checks,
        vocabulary=vocabulary,
        profile=Profile(0.01, 1e-3, 1e-6, 1e-3, 3, 6, 48, len(PIECES), N_CTX),
        bos_choices=("default", "none", "own", "endoftext"),
        has_chat_template=True,
    )


def next_token(ids: tuple[int, ...], position: int = -1, top_k: int = 10) -> NextToken:
    """The canned distribution after a position."""
    position %= len(ids)
    read = ids[: position + 1]
    target = (3 * sum(read) + len(read) + 96) % len(PIECES)
    logits = (-((np.arange(len(PIECES)) - target) % len(PIECES)) / 2).astype(np.float32)
    top = np.argsort(-logits, kind="stable")[:top_k].astype(np.int32)
    log_probability = log_softmax(logits)
    return NextToken(
        position=position,
        ids=top,
        probability=np.exp(log_probability[top]).astype(np.float32),
        log_probability=log_probability[top].astype(np.float32),
        logits=logits,
        entropy_nats=entropy_nats(np.exp(log_probability)),
    )


def tokenize(
    text: str, *, bos: str = "default", chat: bool = False, plain: bool = False, keep: str | None = None
) -> Tokens:
    """The longest piece that fits, from the left; special ones only when the text is not plain. No BOS by default."""
    front = {"own": BOS, "endoftext": END}.get(bos, BOS if chat else "")
    whole = f"{BOS}{TURN[0]}{text}{TURN[1]}" if chat else text
    known = sorted(PIECES[256:] if not plain else PIECES[258:], key=len, reverse=True)
    pattern = re.compile("|".join(re.escape(piece.decode()) for piece in known) + "|.", re.DOTALL)
    rows = [(IDS[front.encode()], -1, -1)] if front and not chat else []
    for match in pattern.finditer(whole):
        piece = match[0].encode("utf-8", "replace")
        for token_id in [IDS[piece]] if piece in IDS else list(piece):
            rows.append((token_id, *match.span()))
    n_cut = max(0, len(rows) - N_CTX) if keep else 0
    kept = rows[: len(rows) - n_cut] if keep == "start" else rows[n_cut:]
    return Tokens(
        text=whole,
        ids=tuple(row[0] for row in kept),
        pieces=tuple(PIECES[row[0]] for row in kept),
        starts=tuple(row[1] for row in kept),
        ends=tuple(row[2] for row in kept),
        special=tuple(row[0] in SPECIAL for row in kept),
        bos=front,
        chat=chat,
        plain=plain,
        lost=tuple(dict.fromkeys(c for c in text if c == "\x01")),
        replaced=0,
        n_ctx=N_CTX,
        n_cut=n_cut,
        cut=("end" if keep == "start" else "start") if n_cut else "",
    )


@dataclass
class StubJob:
    """A job whose events are known beforehand; one a poll, the final one for ever."""

    events: list[Event | None]
    cancelled: bool = False

    def poll(self, timeout: float) -> Event | None:
        return self.events.pop(0) if len(self.events) > 1 else self.events[0]

    def result(self, timeout: float | None = None) -> Any:
        while (final := self.poll(0)) is None or final.kind not in ("done", "failed"):
            pass
        if final.failure is not None:
            raise final.failure
        return final.result

    def cancel(self) -> None:
        self.cancelled = True


@dataclass
class StubBackend:
    """Answers at once. `news` come before every answer; `refuse_job` and `refuse_tokens` are raised instead of one."""

    now: Status = field(default_factory=lambda: Status(model_info()))
    coming: list[Status] = field(default_factory=list)  # what `status` says next, one a call
    news: tuple[Event | None, ...] = ()
    refuse_job: Refused | None = None
    refuse_submit: Refused | None = None
    refuse_tokens: Exception | None = None
    requests: list[tuple[Request, Who]] = field(default_factory=list)
    texts: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    jobs: list[StubJob] = field(default_factory=list)
    opened: list[tuple[str | None, dict[str, Any]]] = field(default_factory=list)
    stopped_opening: int = 0
    closed: int = 0

    def status(self) -> Status:
        if self.coming:
            self.now = self.coming.pop(0)
        return self.now

    def models(self) -> tuple[ModelInfo, ...]:
        return () if self.now.model is None else (self.now.model,)

    def open(self, source: str | None, **options: Any) -> None:
        self.opened.append((source, options))

    def cancel_open(self) -> None:
        self.stopped_opening += 1

    def tokenize(self, text: str, **options: Any) -> Tokens:
        self.texts.append((text, options))
        if self.refuse_tokens is not None:
            raise self.refuse_tokens
        return tokenize(text, **options)

    def estimate(self, request: Request) -> Cost:
        return Cost(0.1, 1000, 1000)

    def submit(self, request: Request, who: Who) -> StubJob:
        self.requests.append((request, who))
        if self.refuse_submit is not None:
            raise self.refuse_submit
        job = StubJob([*self.news, self._answer(request)])
        self.jobs.append(job)
        return job

    def stats(self) -> Stats:
        return Stats(
            transport="stub",
            pid=1,
            waiting=2,
            finished=3,
            cancelled=0,
            restarts=4,
            cache_bytes=0,
            cache_hits=0,
            hooks=0,
            grad_enabled=False,
        )

    def close(self) -> None:
        self.closed += 1

    def _answer(self, request: Request) -> Event:
        if self.refuse_job is not None:
            return Event("failed", failure=self.refuse_job)
        if len(request.tokens) > N_CTX:
            sentence = f"needs at most {N_CTX} tokens; found {len(request.tokens)}; shorten the prompt."
            return Event("failed", failure=Refused("bad_request", sentence))
        if request.analysis != "next_token":
            sentence = f"needs next_token; found {request.analysis}; the stub answers nothing else."
            return Event("failed", failure=Refused("bad_request", sentence))
        params: Mapping[str, Any] = request.params
        return Event("done", result=next_token(request.tokens, **params), seconds=0.25)
