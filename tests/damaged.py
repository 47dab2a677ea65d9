"""What is done to a whole model in a folder so that it cannot be opened, and the words that must then be said."""

import json
import re
import struct

from safetensors.torch import load_file, save_file

WEIGHTS = "model.safetensors"


# ---- what is done to a whole model: folder -> None ----


def remove(*names):
    return lambda folder: [(folder / name).unlink() for name in names]


def write(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def config(**fields):
    def change(folder):
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))

    return change


def config_of(name, head="ForCausalLM"):
    """The config.json that transformers itself writes for another family."""

    def change(folder):
        import transformers

        made = getattr(transformers, name)()
        made.architectures = [name.replace("Config", head)]
        made.save_pretrained(folder)

    return change


def instead_of_weights(name):
    def change(folder):
        (folder / WEIGHTS).unlink()
        (folder / name).write_bytes(b"anything")

    return change


def cut(keep):
    def change(folder):
        data = (folder / WEIGHTS).read_bytes()
        (folder / WEIGHTS).write_bytes(data[: int(keep * len(data))])

    return change


def without_tensors(part):
    def change(folder):
        tensors = {name: t for name, t in load_file(folder / WEIGHTS).items() if part not in name}
        save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})

    return change


def index(**files):
    """An index that lists these files, in place of the single one."""

    def change(folder):
        (folder / WEIGHTS).rename(folder / "model-1.safetensors")
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))

    return change


def two(*changes):
    return lambda folder: [change(folder) for change in changes]


def quantised(**described):
    return config(quantization_config=described)


CODE = {"AutoConfig": "modeling_x.XConfig", "AutoModelForCausalLM": "modeling_x.XForCausalLM"}

# name -> (what is done to the folder, words of the sentence)
FAILURES = {
    "no config": (remove("config.json"), "needs a folder with config.json"),
    "config is no JSON": (write("config.json", b"{"), "not JSON"),
    "config is a list": (write("config.json", b"[1]"), "found a list"),
    "no model type": (write("config.json", b"{}"), "needs a model_type"),
    "config with nonsense": (
        config(num_hidden_layers="three"),
        "needs config.json in a form .*num_hidden_layers.*three",
    ),
    "no tokenizer": (remove("tokenizer.json"), "needs a tokenizer; found neither"),
    "damaged tokenizer": (write("tokenizer.json", b'{"version'), "needs the tokenizer in a form"),
    "tokenizer of another kind": (
        write("tokenizer.json", b'{"model": {"type": "X"}}'),
        "needs the tokenizer in a form",
    ),
    "no weights": (remove(WEIGHTS), "found no weights"),
    "pickles only": (
        instead_of_weights("pytorch_model.bin"),
        r"needs safetensors; found only pytorch_model.bin .* run code",
    ),
    "GGUF only": (instead_of_weights("model.gguf"), "found only model.gguf"),
    "weights cut in half": (cut(0.5), rf"needs complete safetensors; found {WEIGHTS} .* damaged or cut short"),
    "weights cut in their header": (cut(0.005), "damaged or cut short"),
    "weights empty": (cut(0), r"cut short \(0 bytes\)"),
    "weights are something else": (write(WEIGHTS, b"<html>not found</html>" * 9), "damaged or cut short"),
    "header larger than the file": (write(WEIGHTS, struct.pack("<Q", 2**40) + b"{}"), "damaged or cut short"),
    "a shard is missing": (index(a="model-1.safetensors", b="model-2.safetensors"), "found no model-2.safetensors"),
    "index names a pickle": (
        two(index(a="model-1.safetensors", b="weights.bin"), write("weights.bin", b"anything")),
        "safetensors of its own folder; found weights.bin",
    ),
    "index points outside": (index(a="../model-1.safetensors"), r"found no \.\./model-1"),
    "a layer is missing": (
        without_tensors("layers.2."),
        r"needs a tensor for every part .*layers\.2\..* \(9 missing\)",
    ),
    "other shapes": (config(intermediate_size=64), "weights of the shapes that config.json describes"),
    "more layers than weights": (config(num_hidden_layers=4), "found none for model.layers.3"),
    "encoder": (config_of("BertConfig", head="ForMaskedLM"), "decoder-only language model; found BertForMaskedLM"),
    "encoder without a head": (config_of("RobertaConfig", head="Model"), "found RobertaModel .* next token"),
    "encoder-decoder": (config_of("T5Config", head="ForConditionalGeneration"), "found an encoder-decoder"),
    "encoder-decoder that does not say so": (
        write("config.json", b'{"model_type": "bart", "architectures": ["BartForConditionalGeneration"]}'),
        "found an encoder-decoder",
    ),
    "unknown architecture": (
        config(model_type="own_design"),
        r"installed transformers 5\S* knows; found the type own_design",
    ),
    "picture model": (config_of("ViTConfig", head="ForImageClassification"), "needs a language model .* vit"),
    "code of its own": (config(model_type="own_design", auto_map=CODE), "code from the repository.*never run"),
    "family the bridge lacks": (config_of("BioGptConfig"), "TransformerBridge 4.3 knows; found biogpt"),
    "bitsandbytes": (
        quantised(load_in_4bit=True, quant_method="bitsandbytes"),
        "needs the package bitsandbytes .* install it, or name a version",
    ),
    "bitsandbytes that does not say so": (quantised(load_in_8bit=True), "needs the package bitsandbytes"),
    "GPTQ": (quantised(quant_method="gptq", bits=4), "needs the package gptqmodel"),
    "AWQ": (quantised(quant_method="awq", bits=4), "needs the package gptqmodel"),
    "compressed-tensors": (quantised(quant_method="compressed-tensors"), "needs the package compressed-tensors"),
    "unknown quantisation": (quantised(quant_method="own3bit"), "quantised with own3bit; name a version"),
    "unnamed quantisation": (quantised(bits=3), "quantised with an unnamed method"),
}


def check_sentence(sentence, words):
    """Three parts, one line, our words: nothing of a traceback, and not longer than a person reads."""
    assert re.fullmatch(r"needs [^\n]+; found[ :][^\n]+; [^\n]+\.", sentence), sentence
    assert re.search(words, sentence), sentence
    assert not re.search(r"Traceback|File \"|line \d+, in|<class|\x1b", sentence), sentence
    assert len(sentence) < 600, sentence
