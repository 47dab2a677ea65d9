"""A name becomes a model or one plain sentence, whatever the hub does, and nothing of a repository is executed."""

import json
import socket
import threading

import huggingface_hub
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from analyses import sources
from analyses._source import check_config, is_native
from analyses._steps import Cancelled
from analyses.sources import EMBEDDED, SourceError, fetch, resolve
from tests.stub_hub import COMMIT, MODEL, REPOS, WEIGHTS, StubHub

PATIENCE = 30.0  # seconds a loaded machine may take where no limit is the subject


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A stub hub that the library talks to, with an empty cache and no token."""
    with StubHub() as stub:
        use_hub(monkeypatch, tmp_path, stub.url)
        yield stub
        huggingface_hub.close_session()


def use_hub(monkeypatch, tmp_path, url):
    huggingface_hub.close_session()
    monkeypatch.setenv("HF_ENDPOINT", url)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_TOKEN_PATH", str(tmp_path / "no-token"))
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "no-token"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def folder(tmp_path):
    """A local model of one tensor."""
    path = tmp_path / "mine"
    path.mkdir()
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (path / name).write_bytes(MODEL[name])
    return path


def refusal(name, **options):
    """The sentence with which a name is refused, in three parts."""
    with pytest.raises(SourceError) as caught:
        resolve(name, **{"timeout": PATIENCE, **options})
    sentence = str(caught.value)
    assert [part in sentence for part in ("needs ", "; found", "; ")] == [True] * 3
    assert sentence.endswith(".") and "\n" not in sentence
    return sentence


# The hub


def test_hub_model_is_judged_without_its_weights(hub):
    source = resolve("tiny/model", timeout=PATIENCE)
    assert (source.kind, source.revision, source.model_type) == ("hub", COMMIT, "llama")
    assert source.n_bytes == len(WEIGHTS)
    assert set(source.files) == {"config.json", "model.safetensors", "tokenizer.json"}
    assert hub.fetched() == {"config.json"}


def test_download_brings_the_files_and_no_code_and_ends_at_its_total(hub):
    seen = []
    source = resolve("tiny/model", timeout=PATIENCE)
    path = fetch(source, on_progress=seen.append)
    assert np.array_equal(load_file(path / "model.safetensors")["w"], np.arange(65536, dtype=np.float32))
    assert {p.name for p in path.iterdir()} == set(source.files)
    assert not hub.fetched() & {"pytorch_model.bin", "modeling.py"}
    total = sum(len(MODEL[name]) for name in source.files)
    assert (seen[-1].done, seen[-1].total) == (total, total)
    assert [p.done for p in seen] == sorted(p.done for p in seen)


def test_model_that_disappears_before_its_download_is_one_sentence(hub, monkeypatch):
    source = resolve("tiny/model", timeout=PATIENCE)
    monkeypatch.delitem(REPOS, "tiny/model")
    with pytest.raises(SourceError, match=r"^needs a model that exists .* found no tiny/model on the hub .*\.$"):
        fetch(source)


def test_cache_that_cannot_be_written_is_named(hub, monkeypatch, tmp_path):
    (tmp_path / "taken").write_text("")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "taken"))
    assert str(tmp_path / "taken") in refusal("tiny/model")


def test_second_fetch_asks_the_hub_for_nothing(hub):
    source = resolve("tiny/model", timeout=PATIENCE)
    first = fetch(source)
    before = len(hub.asked)
    assert fetch(source) == first and len(hub.asked) == before


def test_cancel_in_the_middle_leaves_no_partial_file_and_a_retry_succeeds(hub, tmp_path):
    source = resolve("tiny/slow", timeout=PATIENCE)

    def stop(progress):
        if hub.waiting.is_set():
            raise Cancelled

    with pytest.raises(Cancelled):
        fetch(source, on_progress=stop)
    assert not hub.go.is_set()  # it came back although the hub never went on
    assert not list((tmp_path / "hub").rglob("*.incomplete"))
    hub.go.set()
    path = fetch(source)
    assert (path / "model.safetensors").read_bytes() == WEIGHTS


@pytest.mark.parametrize(
    ("name", "revision", "words"),
    [
        ("tiny/gated", None, ("gated", "no token", "HF_TOKEN")),
        ("tiny/missing", None, ("found no tiny/missing", "spelling")),
        ("tiny/model", "nope", ("no nope of tiny/model", "branch, tag or commit")),
        ("tiny/pickle", None, ("needs safetensors", "pytorch_model.bin", "run code")),
        ("tiny/gguf", None, ("no config.json in tiny/gguf",)),
        ("tiny/big", None, ("below 10 MB", "tiny/big")),
        ("tiny/encoder", None, ("decoder-only", "BertForMaskedLM")),
        ("tiny/custom", None, ("own_design", "code from the repository")),
    ],
)
def test_each_refusal_of_the_hub_is_one_sentence(hub, name, revision, words):
    sentence = refusal(name, revision=revision)
    assert [word for word in words if word not in sentence] == []


def test_gated_with_a_token_says_that_the_token_has_no_access(hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_" + "a" * 34)
    assert "a token without access" in refusal("tiny/gated")


def test_hub_that_hangs_is_given_up_before_it_answers(hub):
    sentence = refusal("tiny/hangs", timeout=0.5)
    assert "within 0.5 s" in sentence
    assert not hub.go.is_set()
    hub.go.set()
    wait_for_resolvers()


def wait_for_resolvers():
    """Let the threads that were left behind end before their hub does."""
    for thread in threading.enumerate():
        if thread.name.startswith("resolve "):
            thread.join(PATIENCE)


def test_unreachable_hub_is_named(monkeypatch, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    use_hub(monkeypatch, tmp_path, url)
    sentence = refusal("tiny/model", timeout=10.0)  # retries would take 24 s and end in another sentence
    assert url in sentence and "no connection" in sentence and "HF_HUB_OFFLINE=1" in sentence


def test_answer_that_is_no_hub_is_one_sentence(hub, monkeypatch):
    monkeypatch.setattr("tests.stub_hub.MODEL", {})
    monkeypatch.setattr("tests.stub_hub._Handler.send_json", lambda self, value: self.send_body(200, b"<html>", {}))
    assert "is a hub" in refusal("tiny/model")


def test_offline_opens_what_was_downloaded_and_refuses_the_rest_without_a_request(hub, monkeypatch):
    path = fetch(resolve("tiny/model", timeout=PATIENCE))
    before = len(hub.asked)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    source = resolve("tiny/model", timeout=PATIENCE)
    assert (source.revision, fetch(source)) == (COMMIT, path)
    assert "HF_HUB_OFFLINE is set" in refusal("tiny/other")
    assert len(hub.asked) == before


# Local folders


def test_folder_comes_before_the_hub(hub, folder, monkeypatch):
    (folder.parent / "tiny").mkdir()
    folder.rename(folder.parent / "tiny" / "model")
    monkeypatch.chdir(folder.parent)
    source = resolve("tiny/model", timeout=PATIENCE)
    assert (source.kind, source.n_bytes) == ("local", len(WEIGHTS))
    assert fetch(source) == folder.parent / "tiny" / "model"
    assert hub.asked == []


@pytest.mark.parametrize("name", ["./nothing", "~/nothing-here", "/nothing/here", "a/b/c", "..", "tiny\\model", "."])
def test_path_is_never_asked_from_the_hub(hub, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "folder" in refusal(name)
    assert hub.asked == []


@pytest.mark.parametrize("name", ["", "gpt2", "two words/x", "a--b/c", "owner/..", "owner/x?y", "ö/x", "a/b\n"])
def test_what_is_no_hub_id_is_never_sent(hub, name):
    refusal(name)
    assert hub.asked == []


@pytest.mark.parametrize("revision", ["../../x", "a b", "", "x" * 300])
def test_revision_that_is_none_is_never_sent(hub, revision):
    assert "branch, tag or commit" in refusal("tiny/model", revision=revision)
    assert hub.asked == []


def test_half_copied_shards_are_refused(folder):
    (folder / "model.safetensors").unlink()
    names = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    save_file({"a": np.zeros(3, np.float32)}, folder / names[0])
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": names[0], "b": names[1]}}))
    assert f"no {names[1]}" in refusal(str(folder))
    save_file({"b": np.zeros(3, np.float32)}, folder / names[1])
    source = resolve(str(folder), timeout=PATIENCE)
    assert source.n_bytes == sum((folder / name).stat().st_size for name in names)


def test_second_copy_of_the_weights_is_not_counted(folder):
    (folder / "consolidated.safetensors").write_bytes(WEIGHTS)
    assert resolve(str(folder), timeout=PATIENCE).n_bytes == len(WEIGHTS)


def test_old_repository_with_code_is_opened_when_transformers_has_the_family():
    assert is_native("falcon") and is_native("gpt2") and is_native("gemma3_text")
    assert not is_native("own_design") and not is_native("bert_of_mine")
    config = {"model_type": "falcon", "architectures": ["FalconForCausalLM"], "auto_map": {"AutoModel": "x.Y"}}
    assert check_config(config, "x") == ("FalconForCausalLM", "falcon")
    assert check_config({"model_type": "bert", "architectures": ["BertLMHeadModel"], "is_decoder": True}, "x")


def test_revision_of_a_folder_or_of_the_embedded_model_is_refused(folder):
    assert "leave" in refusal(str(folder), revision="main")
    assert "leave" in refusal(EMBEDDED, revision="main")


def test_missing_package_of_the_embedded_model_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr("analyses.conversion.find_spec", lambda name: None)
    sentence = refusal(None)
    assert "requirements-model.txt" in sentence and "--no-deps" in sentence


def test_embedded_model_is_found_without_importing_its_package():
    source = resolve()
    assert (source.name, source.kind) == (EMBEDDED, "embedded")
    assert "4 bits" in source.note and source == resolve(EMBEDDED)


def test_cache_folder_follows_the_one_variable(monkeypatch, tmp_path):
    monkeypatch.setenv("STREAMSCOPE_CACHE", str(tmp_path / "elsewhere"))
    assert sources.cache_folder() == tmp_path / "elsewhere"
    monkeypatch.delenv("STREAMSCOPE_CACHE")
    assert sources.cache_folder().name == "streamscope"
