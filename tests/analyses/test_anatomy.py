"""The count is that of the model transformers builds, part by part, for every family and for well-known models."""

import json
import re
from pathlib import Path

import pytest

from analyses import count_parameters
from analyses._architecture_families import FAMILIES
from analyses._architecture_known import known_architectures
from tests.analyses.architectures import CASES, on_meta

REFERENCE = json.loads((Path(__file__).parents[1] / "data" / "parameters_reference.json").read_text())["models"]

# What a parameter's name says it is part of; the first pattern that fits.
PARTS = (
    ("embedding", r"\b(wte|embed_tokens|embed_in|word_embeddings)\.weight$"),
    ("position", r"\b(wpe|embed_positions)\."),
    ("projection", r"\bproject_(in|out)\."),
    ("unembedding", r"^lm_head\.weight$"),
    ("unembedding_bias", r"^lm_head\.bias$"),
    ("norm", r"norm|\bln_"),
    ("router", r"\bmlp\.gate\.|shared_expert_gate"),
    ("shared_expert", r"shared_expert\."),
    ("experts", r"\.experts\."),
    ("mlp_bias", r"\b(mlp|fc1|fc2)\b.*bias$"),
    ("dense_mlp", r"\b(mlp|fc1|fc2)\b"),
    ("attention_bias", r"bias$"),
    ("attention_matrices", r"weight$"),
)


def part_of(name):
    return next(part for part, pattern in PARTS if re.search(pattern, name))


@pytest.mark.parametrize("case", CASES)
def test_every_part_is_that_of_the_model_transformers_builds(case):
    parameters = on_meta(CASES[case])
    counted = count_parameters(CASES[case])
    sums = {part: 0 for part, _ in PARTS}
    for name, parameter in parameters.items():
        sums[part_of(name)] += parameter.numel()
    assert {part: getattr(counted, part) for part in sums} == sums
    assert counted.total == sum(parameter.numel() for parameter in parameters.values())


def test_every_family_has_a_plain_and_an_odd_case():
    families = [case["model_type"] for case in CASES.values()]
    assert {family for family in FAMILIES if families.count(family) < 2} == set()


def test_q_k_v_and_o_are_told_apart():
    config = CASES["llama odd"]  # 4 heads, 2 KV heads, size 12, width 32, 3 layers
    counted = count_parameters(config)
    sizes = {name: p.numel() for name, p in on_meta(config).items() if name.endswith("weight")}
    for part, tensor in (("query", "q_proj"), ("key", "k_proj"), ("value", "v_proj"), ("output", "o_proj")):
        assert getattr(counted, part) == sum(size for name, size in sizes.items() if tensor in name)
    assert (counted.query, counted.key) == (3 * 32 * 4 * 12, 3 * 32 * 2 * 12)


@pytest.mark.parametrize("name", REFERENCE)
def test_well_known_models_have_their_totals(name):
    total, active, embedding, attention, mlp, norms, share, cache = REFERENCE[name]
    known = known_architectures()[name]
    counted = count_parameters(known.config)
    layers = known.config.get("num_hidden_layers", known.config.get("n_layer"))
    assert (
        (counted.total, counted.active, counted.embedding) == (total, active, embedding) == (*totals(known), embedding)
    )
    assert (counted.attention_matrices, counted.mlp_matrices) == (layers * attention, layers * mlp)
    assert counted.mlp_share == pytest.approx(share, abs=5e-5)
    assert counted.norm - layers * norms in (0, known_width(known), 2 * known_width(known))  # the final norm is left


def totals(known):
    return known.total, known.active


def known_width(known):
    return known.config.get("hidden_size", known.config.get("n_embd"))


def test_what_was_published_is_what_is_counted():
    """Exact numbers, bytes of an index (two per parameter), and counts without the embeddings."""
    exact = 0
    for known in known_architectures().values():
        counted = count_parameters(known.config)
        assert (counted.total, counted.active) == totals(known)
        tables = counted.embedding + counted.position + counted.unembedding
        for number, after in re.findall(r"(\d{1,3}(?:,\d{3}){2,})([^;]*)", known.published):
            value = int(number.replace(",", ""))
            expected = 2 * counted.total if "bytes" in after else counted.total
            assert value == (counted.total - tables if "without" in after else expected), known.name
            exact += 1
        for number in re.findall(r"^([\d.]+)B\b", known.published):  # rounded, or rounded down by its publisher
            assert counted.total / 1e9 == pytest.approx(float(number), rel=0.2), known.name
    assert exact >= 24 and len(known_architectures()) >= 20


def test_the_largest_of_every_family_is_what_transformers_builds():
    largest = {known.config["model_type"]: known for known in known_architectures().values()}
    for known in largest.values():
        assert sum(p.numel() for p in on_meta(dict(known.config)).values()) == known.total, known.name


def test_active_experts_by_hand():
    counted = count_parameters(CASES["qwen2 moe, some"])  # of 3 layers only layer 1 has experts: 5, of which 2 are used
    assert counted.experts == 5 * 3 * 32 * 20
    assert counted.active_experts == 2 * 3 * 32 * 20
    assert counted.total - counted.active == 3 * 3 * 32 * 20
    assert counted.shared_expert == 3 * 32 * 28
    assert counted.dense_mlp == 2 * 3 * 32 * 48
    assert counted.router == 5 * 32 + 32


def test_the_working_that_is_shown_gives_the_numbers():
    for known in {known.config["model_type"]: known for known in known_architectures().values()}.values():
        counted = count_parameters(known.config)
        values = []
        for _, _, letters, numbers, value, _ in counted.working:
            assert letters.count("×") == numbers.count("×")
            product = 1
            for factor in numbers.split(" × "):
                product *= int(factor.replace(",", ""))
            values.append(value)
            assert product == value
        assert sum(values) == counted.total
    assert counted.to_frame()["parameters"].sum() == counted.total


def test_smollm2_by_hand():
    counted = count_parameters(known_architectures()["SmolLM2-135M"].config)
    attention, mlp = 576 * 576 + 2 * 576 * 192 + 576 * 576, 3 * 576 * 1536
    assert counted.total == 49152 * 576 + 30 * (attention + mlp + 2 * 576) + 576 == 134_515_008
    assert counted.mlp_share_of_blocks == mlp / (mlp + attention) == 0.75
    assert counted.unembedding == 0


def test_the_embedded_model_has_as_many_parameters_as_its_config_says(smol_dir):
    from safetensors import safe_open

    file = next(smol_dir.glob("*.safetensors"))
    with safe_open(file, "numpy") as tensors:
        sizes = [tensors.get_slice(name).get_shape() for name in tensors.keys()]
    stored = sum(rows * (columns[0] if columns else 1) for rows, *columns in sizes)
    assert count_parameters((smol_dir / "config.json").read_text()).total == stored
