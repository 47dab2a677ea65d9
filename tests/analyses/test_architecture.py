"""A config.json is read as transformers reads it; what cannot be is refused in one sentence, quickly."""

import json

import pytest

from analyses._architecture import read_architecture
from analyses._architecture_families import FAMILIES
from analyses._architecture_json import MAX_CHARACTERS
from tests.analyses.architectures import CASES, hf_config

LLAMA = CASES["llama"]


def found(architecture):
    return {field: (value, how) for field, value, how in architecture.found}


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_missing_has_the_value_that_transformers_gives_it(family):
    given = hf_config({"model_type": family})
    read = read_architecture({"model_type": family})

    def default(*names):
        return next((value for name in names if (value := getattr(given, name, None)) is not None), None)

    width, heads = given.hidden_size, given.num_attention_heads
    assert read.n_layers == given.num_hidden_layers
    assert (read.d_model, read.n_heads, read.d_vocab) == (width, heads, given.vocab_size)
    assert read.n_kv_heads == default("num_key_value_heads", "num_attention_heads")
    assert read.d_head == (default("head_dim") or width // heads)
    assert read.d_mlp == (default("intermediate_size", "ffn_dim", "n_inner") or 4 * width)
    assert read.n_ctx == default("max_position_embeddings")
    assert read.tied == given.tie_word_embeddings
    assert read.activation == default("hidden_activation", "hidden_act", "activation_function") or family == "bloom"
    assert (read.n_experts, read.n_active_experts) == (
        default("num_experts", "num_local_experts") or 0,
        default("num_experts_per_tok") or 0,
    )
    assert read.windows == windows_of(given)


def windows_of(given):
    kinds = getattr(given, "layer_types", None) or ["sliding_attention"] * given.num_hidden_layers
    window = getattr(given, "sliding_window", None) or 0
    return tuple(window if kind == "sliding_attention" else 0 for kind in kinds)


@pytest.mark.parametrize(
    "config",
    [
        dict(model_type="qwen2", num_hidden_layers=5, use_sliding_window=True, sliding_window=9, max_window_layers=3),
        dict(
            model_type="qwen2_moe", num_hidden_layers=5, use_sliding_window=True, sliding_window=9, max_window_layers=4
        ),
        dict(model_type="qwen3_moe", num_hidden_layers=5, use_sliding_window=True, sliding_window=9),
        dict(model_type="gemma3_text", num_hidden_layers=7, sliding_window=9, sliding_window_pattern=3),
        dict(model_type="mistral", num_hidden_layers=2, sliding_window=None),
        dict(model_type="gemma2", num_hidden_layers=2, layer_types=["full_attention", "sliding_attention"]),
    ],
    ids=lambda config: config["model_type"],
)
def test_windows_are_where_transformers_has_them(config):
    assert read_architecture(config).windows == windows_of(hf_config(config))


def test_how_a_field_was_found_is_said():
    fields = found(read_architecture({"model_type": "gpt2", "n_embd": 32, "n_head": 4}))
    assert fields["hidden_size"] == ("32", "read under the name n_embd")
    assert fields["intermediate_size"] == ("128", "derived: 4 × hidden_size = 4 × 32 = 128")
    assert fields["head_dim"] == ("8", "derived: hidden_size / num_attention_heads = 32 / 4 = 8")
    assert fields["num_hidden_layers"] == ("12", "not in the file: the default of GPT-2")
    fields = found(read_architecture(LLAMA | {"head_dim": 12}))
    assert fields["head_dim"] == ("12", "read")
    assert fields["num_key_value_heads"] == ("4", "derived: as many as num_attention_heads = 4")


def test_a_field_that_the_family_does_not_have_is_said_and_not_counted():
    (remark,) = read_architecture(LLAMA | {"num_experts": 8, "rope_theta": 1e4}).remarks
    assert "'num_experts' stands in the file, but Llama has no such field" in remark
    assert read_architecture(CASES["phi3"] | {"attention_bias": False}).remarks == ()  # as its published files
    (remark,) = read_architecture(LLAMA | {"wiggle": 3}).remarks
    assert remark == "Not known here, and not in the count: 'wiggle'."
    (remark,) = read_architecture(LLAMA | {"quantization_config": {"bits": 4}}).remarks
    assert "stored quantised" in remark


def test_the_whole_configs_of_transformers_are_read_without_remarks():
    for name in sorted(CASES.keys() - {"gpt2 in other words"}):
        config = hf_config(CASES[name])
        read = read_architecture(json.dumps(config.to_dict()))
        assert read.remarks == ()
        assert (read.d_model, read.n_layers) == (config.hidden_size, config.num_hidden_layers)


def test_gemma_3_with_vision_is_read_one_level_deeper():
    text = CASES["gemma3"]
    nested = {"model_type": "gemma3", "text_config": text, "vision_config": {"hidden_size": 7}}
    read = read_architecture(nested)
    assert (read.d_model, read.family) == (32, "gemma3_text")
    assert "not the part that reads images" in read.remarks[0]
    assert not read_architecture(nested | {"tie_word_embeddings": False}).tied
    with pytest.raises(ValueError, match="needs one value for tie_word_embeddings"):
        read_architecture(nested | {"tie_word_embeddings": False, "text_config": text | {"tie_word_embeddings": True}})
    with pytest.raises(ValueError, match="needs a text_config"):
        read_architecture({"model_type": "gemma3"})


def test_a_byte_order_mark_and_bytes_are_read():
    text = json.dumps(LLAMA)
    assert read_architecture("\ufeff" + text) == read_architecture(text.encode()) == read_architecture(LLAMA)


REFUSED = {
    "unknown family": (LLAMA | {"model_type": "mamba"}, "needs a family .* found model_type 'mamba'"),
    "no family": ({"hidden_size": 3}, 'needs a "model_type"'),
    "family of a strange kind": (LLAMA | {"model_type": ["llama"]}, 'needs a "model_type"'),
    "encoder": (LLAMA | {"is_encoder_decoder": True}, "needs a decoder"),
    "negative": (LLAMA | {"hidden_size": -576}, "needs hidden_size .* found -576"),
    "zero": (LLAMA | {"num_attention_heads": 0}, "needs num_attention_heads .* found 0"),
    "words": (LLAMA | {"vocab_size": "49152"}, "needs vocab_size .* found '49152'"),
    "a switch": (LLAMA | {"num_hidden_layers": True}, "needs num_hidden_layers .* found true"),
    "a fraction": (LLAMA | {"hidden_size": 32.0}, r"needs hidden_size .* found 32\.0"),
    "a list": (LLAMA | {"intermediate_size": [1] * 9}, "needs intermediate_size .* found a list of 9"),
    "null heads": (CASES["mistral"] | {"num_key_value_heads": None}, "needs num_key_value_heads .* found null"),
    "null": (LLAMA | {"hidden_size": None}, "needs hidden_size .* found null"),
    "huge": (LLAMA | {"vocab_size": 10**30}, "needs vocab_size .* found a number of more than 19 digits"),
    "many layers": (LLAMA | {"num_hidden_layers": 10**9}, "needs num_hidden_layers .* to 10,000; found"),
    "a number as a switch": (
        LLAMA | {"tie_word_embeddings": 1},
        "needs tie_word_embeddings to be true or false; found 1",
    ),
    "no divisor": (LLAMA | {"num_key_value_heads": 3}, "needs num_attention_heads to be a multiple"),
    "uneven heads": (CASES["gpt2"] | {"n_head": 5}, "needs hidden_size to be a multiple"),
    "two values": (CASES["gpt2"] | {"hidden_size": 33}, "needs one value for hidden_size; found 32 as n_embd and 33"),
    "too many experts": (CASES["mixtral"] | {"num_experts_per_tok": 9}, "needs num_experts_per_tok of at most"),
    "no step": (CASES["qwen3 moe"] | {"decoder_sparse_step": 0}, "needs decoder_sparse_step"),
    "strange layers": (CASES["qwen3 moe"] | {"mlp_only_layers": ["0"]}, "needs mlp_only_layers to be a list of layers"),
    "strange kinds": (CASES["gemma3"] | {"layer_types": ["full_attention", "chunked", {}]}, "needs layer_types"),
    "too few kinds": (CASES["gemma3"] | {"layer_types": ["full_attention"]}, "needs layer_types to be a list of 3"),
    "window without a size": (CASES["gemma3"] | {"sliding_window": None}, "needs sliding_window .* found null"),
    "activation": (LLAMA | {"hidden_act": 3}, "needs hidden_act to be a name"),
    "not a config": (3, "needs a config.json as text or as a mapping; found a int"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_in_one_sentence(case):
    config, sentence = REFUSED[case]
    with pytest.raises(ValueError, match=sentence) as caught:
        read_architecture(config)
    assert str(caught.value).count(";") == 2 and "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


TEXT = json.dumps(LLAMA)
HOSTILE = {
    "10 MB": ('{"a": "' + "x" * 10_000_000 + '"}', "at most 200,000 characters; found 10,000,009"),
    "deep lists": ("[" * 99_000, "needs"),
    "deep mappings": ('{"a":' * 30_000 + "1" + "}" * 30_000, "nested too deeply"),
    "digits": (TEXT.replace("32", "9" * 150_000, 1), "needs hidden_size"),
    "1e400": (TEXT.replace('"hidden_size": 32', '"hidden_size": 1e400'), "needs hidden_size .* found inf"),
    "NaN": (TEXT.replace('"hidden_size": 32', '"hidden_size": NaN'), "needs hidden_size .* found nan"),
    "twice": (TEXT[:-1] + ', "hidden_size": 64}', "needs each field once; found 'hidden_size' twice"),
    "many fields": ("{" + ",".join(f'"{i}":1' for i in range(16_000)) + "}", 'needs a "model_type"'),
    "nothing": ("   \n", "found nothing"),
    "not JSON": ("hidden_size: 32", "needs JSON; found text that is not, at line 1, column 1"),
    "cut off": (TEXT[:40], "needs JSON"),
    "a list": ("[1, 2]", "needs a mapping of fields; found a list of 2"),
    "a number": ("3", "needs a mapping of fields; found 3"),
    "UTF-16": (TEXT.encode("utf-16"), "needs a text file in UTF-8"),
    "a lone surrogate": ('{"model_type": "\\ud800"}', "model_type '.ud800'"),
    "a long name": ('{"model_type": "' + "m" * 9000 + '"}', r"m{30,}\.\.\."),
    "control characters": ('{"model_type": "\\u202e\\n<b>"}', r"u202e.n<b>"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_text_gets_one_sentence(case):
    text, sentence = HOSTILE[case]
    with pytest.raises(ValueError, match=sentence) as caught:
        read_architecture(text)
    message = str(caught.value)
    assert message.count(";") >= 2 and "\n" not in message and len(message) < 500
    message.encode()  # no lone surrogate reaches the browser


def test_unknown_fields_do_not_fill_the_page():
    fields = {f"x{'y' * 300}{i}": i for i in range(500)}
    (remark,) = read_architecture(LLAMA | fields).remarks
    assert len(remark) < 400 and "and 494 more" in remark
    assert len(json.dumps(LLAMA | fields)) < MAX_CHARACTERS
