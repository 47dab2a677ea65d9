"""Every shape of the drawing is that of an activation in the model that transformers builds."""

import pytest

from analyses._architecture_known import known_architectures
from analyses._architecture_shapes import stream_shapes
from tests.analyses.architectures import CASES
from tests.analyses.test_anatomy_costs import build

N_TEXTS, N_TOKENS = 2, 7


def measured(model, names):
    """Output shapes of the named modules in one forward pass."""
    import torch

    shapes, handles = {}, []
    for name in names:

        def keep(module, inputs, output, name=name):
            shapes[name] = tuple((output[0] if isinstance(output, tuple) else output).shape)

        handles.append(model.get_submodule(name).register_forward_hook(keep))
    with torch.no_grad():
        ids = torch.ones(N_TEXTS, N_TOKENS, dtype=torch.long)
        out = model(ids, use_cache=True, output_attentions=True)
    for handle in handles:
        handle.remove()
    layer = out.past_key_values.layers[0]
    return (
        shapes
        | {"ids": tuple(ids.shape), "scores": tuple(out.attentions[0].shape)}
        | {
            "K, V": tuple(layer.keys.shape),
            "logits": tuple(out.logits.shape),
        }
    )


@pytest.mark.parametrize("case", ["llama odd", "gemma2", "olmo2 odd"])
def test_shapes_are_those_of_the_model(case):
    block = "model.layers.0"
    names = {
        "embedding": "model.embed_tokens",
        "Q": f"{block}.self_attn.q_proj",
        "+ attention": f"{block}.self_attn.o_proj",
        "hidden": f"{block}.mlp.up_proj",
        "+ MLP": f"{block}.mlp.down_proj",
        "final norm": "model.norm",
    }
    real = measured(build(CASES[case]), names.values())
    drawn = {name: shape for name, _, _, shape, _ in stream_shapes(CASES[case], N_TOKENS, N_TEXTS)}
    for name, module in names.items():
        shape = drawn[name]
        if name == "Q":  # heads lie side by side in the matrix' output
            texts, heads, tokens, size = shape
            shape = (texts, tokens, heads * size)
        assert shape == real[module], name
    for name in ("ids", "scores", "K, V", "logits"):
        assert drawn[name] == real[name], name


def test_what_is_drawn_depends_on_the_family():
    def names(config):
        return [name for name, *_ in stream_shapes(config, 5)]

    assert names(CASES["llama"]).count("norm") == 2
    assert names(CASES["phi"]).count("norm") == 1  # both halves read one norm
    assert names(CASES["olmo2"]).count("norm") == 0  # its norms stand behind
    assert names(CASES["opt after"])[:3] == ["ids", "embedding row", "embedding"]
    assert "final norm" not in names(CASES["opt after"])
    experts = {name: shape for name, _, _, shape, _ in stream_shapes(CASES["qwen3 moe"], 5)}
    assert (experts["router"], experts["hidden"]) == ((1, 5, 5), (1, 5, 2, 20))


def test_shared_key_heads_are_said():
    rows = {name: words for name, _, _, _, words in stream_shapes(known_architectures()["SmolLM2-135M"].config, 5)}
    assert rows["K, V"] == "3 KV heads answer: 3 query heads share one"


def test_without_a_token_there_is_no_shape():
    with pytest.raises(ValueError, match="needs at least one token and one text; found 0 and 1"):
        stream_shapes(CASES["llama"], 0)
