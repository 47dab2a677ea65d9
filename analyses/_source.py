"""What every way of getting a model shares: the record of a source, its one error, the checks before a fetch.

A source is judged by its config.json and the names of its files. Nothing of a repository is ever executed, and weights
that run code when they are opened (pickles) are refused.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

EMBEDDED = "smollm2-135m-instruct"  # the catalogue name of the model that comes with the app
CACHE_VARIABLE = "STREAMSCOPE_CACHE"
CONFIG_BYTES = 10_000_000  # the largest config.json we read; the largest seen on the hub are below 1 MB
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"  # the two names transformers looks for

# Files with one of these sets of names hold a tokenizer that transformers opens without code of the repository.
TOKENIZERS = (
    ("tokenizer.json",),
    ("tokenizer.model",),
    ("spiece.model",),
    ("sentencepiece.bpe.model",),
    ("tekken.json",),
    ("vocab.json", "merges.txt"),
    ("vocab.txt",),
)
TOKENIZER_ENDINGS = (".model", ".jinja", ".tiktoken", "vocab.txt", "merges.txt")
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
OTHER_FORMATS = (".gguf", ".onnx", ".h5", ".msgpack")

# Encoder-only families whose repositories often name a bare class ("BertModel"), which does not say that it is one.
ENCODERS = frozenset(
    "albert bert camembert deberta deberta-v2 distilbert electra longformer modernbert mpnet nomic_bert roberta "
    "xlm-roberta xlm-roberta-xl".split()
)
# Encoder-decoders: their configs may leave the flag to the class.
ENCODER_DECODERS = frozenset(
    "bart bigbird_pegasus blenderbot blenderbot-small fsmt led longt5 m2m_100 marian mbart mt5 mvp nllb-moe pegasus "
    "pegasus_x plbart prophetnet switch_transformers t5 t5gemma t5gemma2 umt5 whisper".split()
)
# quant_method in config.json -> the module transformers 5 reads it with, and the package that holds it; None: it needs none.
LIBRARIES: Mapping[str, tuple[str, str] | None] = {
    "aqlm": ("aqlm", "aqlm"),
    "auto-round": ("auto_round", "auto-round"),
    "awq": ("gptqmodel", "gptqmodel"),
    "bitnet": None,
    "bitsandbytes": ("bitsandbytes", "bitsandbytes"),
    "compressed-tensors": ("compressed_tensors", "compressed-tensors"),
    "eetq": ("kernels", "kernels"),
    "fbgemm_fp8": ("fbgemm_gpu", "fbgemm-gpu"),
    "fp8": None,
    "fp_quant": ("fp_quant", "fp-quant"),
    "gptq": ("gptqmodel", "gptqmodel"),
    "higgs": ("flute", "flute-kernel"),
    "hqq": ("hqq", "hqq"),
    "mxfp4": None,
    "mxfp8": None,
    "quanto": ("optimum", "optimum-quanto"),
    "quark": ("quark", "amd-quark"),
    "sinq": ("sinq", "sinq"),
    "spqr": ("spqr_quant", "spqr-quant"),
    "torchao": ("torchao", "torchao"),
    "vptq": ("vptq", "vptq"),
}

ENCODER_HEADS = re.compile(r"For(MaskedLM|(Sequence|Token)Classification|QuestionAnswering|MultipleChoice)$")
DECODER_HEADS = re.compile(r"(ForCausalLM|LMHeadModel|ForConditionalGeneration)$")


class SourceError(ValueError):
    """A model that cannot be opened, in one sentence: needs X; found Y; do Z."""


@dataclass(frozen=True)
class Source:
    """A model that passed every check that needs no weights."""

    name: str  # the catalogue name, the folder as given, or the hub id
    kind: Literal["embedded", "shipped", "local", "hub"]
    revision: str | None  # the commit of a hub model
    note: str  # what a reader of the numbers should know, in words
    path: str | None  # the folder with the files, where there is one already
    architecture: str
    model_type: str
    n_bytes: int  # of the weights that are read
    files: tuple[str, ...]  # the names of the files that are used
    dtype: str = ""  # of the stored weights by their config; "" where it does not say, or they are quantised


def cache_folder() -> Path:
    """Folder of converted models: the user's cache, or where STREAMSCOPE_CACHE says."""
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen).expanduser()
    from platformdirs import user_cache_dir

    return Path(user_cache_dir("streamscope", appauthor=False))


def read_config(text: bytes, name: str) -> dict[str, Any]:
    """The mapping in a config.json; SourceError when it is not one."""
    if len(text) > CONFIG_BYTES:
        raise SourceError(f"needs a config.json below 10 MB; found {len(text):,} bytes in {name}; name another model.")
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SourceError(
            f"needs a readable config.json; found text in {name} that is not JSON ({error}); "
            "fetch it again or repair it."
        ) from error
    if not isinstance(config, dict):
        found = type(config).__name__
        raise SourceError(f"needs a mapping in config.json; found a {found} in {name}; fetch it again or repair it.")
    return config


def check_config(config: Mapping[str, Any], name: str) -> tuple[str, str]:
    """Architecture and model type of a decoder-only model that transformers knows.

    Raises:
        SourceError: no model type, an encoder, or an architecture that transformers does not have.
    """
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or not model_type:
        raise SourceError(f"needs a model_type in config.json; found none in {name}; name a transformers model.")
    named = config.get("architectures")
    architecture = str(named[0]) if isinstance(named, list) and named else ""
    if config.get("is_encoder_decoder", model_type in ENCODER_DECODERS):
        raise SourceError(
            f"needs a decoder-only model; found an encoder-decoder ({architecture or model_type}) in {name}; "
            "name a causal language model."
        )
    bare_encoder = model_type in ENCODERS and not config.get("is_decoder") and not DECODER_HEADS.search(architecture)
    if bare_encoder or ENCODER_HEADS.search(architecture):
        raise SourceError(
            f"needs a decoder-only language model; found {architecture or model_type} in {name}, which does not "
            "predict the next token; name a causal language model."
        )
    if not is_native(model_type):
        if config.get("auto_map"):
            raise SourceError(
                f"needs an architecture that transformers has itself; found {model_type} in {name}, which only runs with "
                "code from the repository; name another model: that code is never run here."
            )
        raise SourceError(
            f"needs a language model that the installed transformers {version('transformers')} knows; found the type "
            f"{model_type} in {name}; name another model, or install a version of transformers that knows it."
        )
    return architecture, model_type


def check_quantised(config: Mapping[str, Any], name: str) -> str:
    """The quantisation method of a config, "" when there is none.

    Raises:
        SourceError: a method that transformers does not know, or whose library is not installed.
    """
    found = config.get("quantization_config") or config.get("compression_config")
    if not found:
        return ""
    described: Mapping[str, Any] = found if isinstance(found, dict) else {}
    bits = described.get("load_in_4bit") or described.get("load_in_8bit")
    method = str(described.get("quant_method") or ("bitsandbytes" if bits else "an unnamed method"))
    if method not in LIBRARIES:
        raise SourceError(
            f"needs weights in a number format that can be read here; found {name} quantised with {method}; "
            "name a version of it that is not quantised."
        )
    library = LIBRARIES[method]
    if library is not None and find_spec(library[0]) is None:
        raise SourceError(
            f"needs the package {library[1]} to read weights quantised with {method}; found {name} in this format and no "
            "such package; install it, or name a version of the model that is not quantised."
        )
    return method


def is_native(model_type: str) -> bool:
    """Whether the installed transformers has a causal language model of this type.

    Read from its source text: importing it takes seconds and pulls torch into a process that has no use for it.
    """
    spec = find_spec("transformers")
    if spec is None or not spec.submodule_search_locations:
        return False
    table = Path(spec.submodule_search_locations[0]) / "models" / "auto" / "modeling_auto.py"
    pairs = re.findall(rf'\(\s*"{re.escape(model_type)}",\s*"(\w+)",?\s*\)', table.read_text(encoding="utf-8"))
    return any(DECODER_HEADS.search(name) for name in pairs)


def weights(names: Mapping[str, int]) -> tuple[str, ...]:
    """Names of the safetensors that transformers reads: the single file, or the shards of the index."""
    if SINGLE in names:
        return (SINGLE,)
    if INDEX not in names:
        return ()
    other = ("consolidated", "adapter_")  # a second copy in another layout; a LoRA
    return tuple(sorted(n for n in names if n.endswith(".safetensors") and "/" not in n and not n.startswith(other)))


def wanted(names: Mapping[str, int]) -> tuple[str, ...]:
    """Names of all files to fetch: safetensors, JSON and tokenizer files of the top folder, never code or pickles."""
    top = {n for n in names if "/" not in n and n.endswith((".json", *TOKENIZER_ENDINGS))}
    return tuple(sorted(top | set(weights(names))))


def describe(
    name: str,
    kind: Literal["local", "hub"],
    config: Mapping[str, Any],
    sizes: Mapping[str, int],
    *,
    revision: str | None = None,
    path: str | None = None,
) -> Source:
    """The source with this config and these files (name -> bytes), or a SourceError that says what is missing."""
    architecture, model_type = check_config(config, name)
    quantised = check_quantised(config, name)
    shards = weights(sizes)
    if not shards:
        raise SourceError(_no_weights(name, sizes))
    if not any(all(part in sizes for part in parts) for parts in TOKENIZERS):
        raise SourceError(
            f"needs a tokenizer; found neither tokenizer.json nor a vocabulary in {name}; "
            "add the tokenizer's files or name another model."
        )
    where = "local folder" if kind == "local" else "Hugging Face hub"
    n_bytes = sum(sizes[shard] for shard in shards)
    dtype = "" if quantised else str(config.get("dtype") or config.get("torch_dtype") or "")
    return Source(name, kind, revision, where, path, architecture, model_type, n_bytes, wanted(sizes), dtype)


def from_folder(folder: Path, name: str, kind: Literal["local", "hub"], revision: str | None = None) -> Source:
    """The source in a folder with config.json, safetensors and a tokenizer."""
    try:
        text = (folder / "config.json").read_bytes()
        sizes = {entry.name: entry.stat().st_size for entry in os.scandir(folder) if entry.is_file()}
        index = (folder / INDEX).read_bytes() if INDEX in sizes and SINGLE not in sizes else b"{}"
    except FileNotFoundError as error:
        raise SourceError(
            f"needs a folder with config.json; found none in {folder}; name the folder that holds it."
        ) from error
    except OSError as error:
        raise SourceError(
            f"needs a readable folder; found {error.strerror} for {folder}; check its permissions."
        ) from error
    source = describe(name, kind, read_config(text, name), sizes, revision=revision, path=str(folder))
    listed = read_config(index, name).get("weight_map", {})
    missing = sorted({str(file) for file in listed.values()} - set(sizes)) if isinstance(listed, dict) else []
    if missing:
        raise SourceError(
            f"needs every file that {INDEX} lists; found no {missing[0]} in {name} ({len(missing)} missing); "
            "complete the copy."
        )
    return source


def _no_weights(name: str, sizes: Mapping[str, int]) -> str:
    """The sentence for a model without safetensors that says what lies there instead."""
    pickles = sorted(n for n in sizes if n.endswith(PICKLES) and n != "training_args.bin")
    others = sorted(n for n in sizes if n.endswith((*OTHER_FORMATS, ".safetensors")))
    if pickles:
        more = f" and {len(pickles) - 1} more" if len(pickles) > 1 else ""
        return (
            f"needs safetensors; found only {pickles[0]}{more} in {name}, which can run code when opened; "
            "choose a revision with safetensors or convert it yourself."
        )
    found = f"only {others[0]}" if others else "no weights"
    return f"needs {SINGLE} or its index; found {found} in {name}; name a model with safetensors weights."
