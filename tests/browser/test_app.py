"""The whole app as a person uses it: `python -m app`, the embedded model in its own process, a real Chromium.

Every number is compared with what plain transformers gives for the same ids, without a line of our code.
"""

import os
import re
import signal
from contextlib import contextmanager

import psutil
import pytest
import torch
from playwright.sync_api import expect

from tests.browser.conftest import wait_idle
from tests.browser.driver import (
    bars,
    choose,
    fits_sideways,
    go_to,
    health,
    open_choices,
    same_digits,
    says,
    shows_prediction,
    strip_ids,
    strip_tokens,
    submit,
    switch,
    wait_health,
)

pytestmark = [pytest.mark.browser, pytest.mark.embedded]

# Streamlit's browser code looks for the server below the address it was opened at; these two answers are not ours.
PROBING = r"^console: .* status of 404 \(Not Found\) http://[^/]+/model/_stcore/(health|host-config)$"
NASTY = "🙂 a\n\n<s>a<b>c</b>$x$"
NASTY_SHOWN = "<F0 9F>|<99 82>|·a|⏎|⏎|<|s|>|a|<|b|>|c|</|b|>|$|x|$".split("|")
EIFFEL = "The Eiffel Tower is located in the city of"
MANY = "The quick brown fox jumps over a lazy dog and sleeps. "
SECTIONS = ("Languages", "Numbers", "Words", "BOS")


@pytest.fixture(scope="module")
def plain(smol_hf):
    """Logits after one position, by transformers alone."""
    model, _ = smol_hf

    def logits(ids, position=-1):
        with torch.inference_mode():
            return model(torch.tensor([ids])).logits[0, position].double()

    return logits


@pytest.fixture(scope="module")
def tokenizer(smol_hf):
    return smol_hf[1]


def is_finished_picture(page, path):
    """What a person sees first; `make screenshot` keeps it as docs/screenshot.png."""
    expect(page.locator(".st-key-tokens-next .bartext")).to_have_count(10)
    expect(page.locator(".st-key-tokens-next .bartext").first).to_be_in_viewport()
    wait_idle(page)
    page.screenshot(path=path)
    assert 20_000 < os.path.getsize(path) < 400_000  # a blank page has 6 KB


def test_a_finished_picture_then_a_prompt_becomes_the_tokens_and_the_prediction_of_plain_transformers(
    new_page, app, plain, tokenizer, tmp_path
):
    page = new_page(app.url)
    says(page, "Your 24 characters became 5 tokens (0.21 per character). After ·is (token 4) the model assigns ·Paris")
    says(page, "77.3 %")
    is_finished_picture(page, os.environ.get("STREAMSCOPE_SCREENSHOT") or tmp_path / "screenshot.png")
    submit(page, NASTY)
    ids = tokenizer(NASTY)["input_ids"]
    says(page, f"Your 20 characters became {len(ids)} tokens (0.95 per character).")
    assert strip_tokens(page).all_text_contents() == NASTY_SHOWN
    assert strip_ids(page) == ids
    shows_prediction(page, tokenizer, plain(ids), len(ids) - 1)
    assert page.locator(".st-key-tokens-strip :is(b, s, a, .katex)").count() == 0
    # new_page fails this test on a console error, a CSP violation, a dialog or a request to another machine.


def test_a_clicked_token_is_predicted_and_stays_through_reload_and_pages(new_page, app, plain, tokenizer):
    page = new_page(f"{app.url}/?list=10")
    submit(page, EIFFEL)
    says(page, "became 10 tokens")
    strip_tokens(page).nth(3).click()
    ids = tokenizer(EIFFEL)["input_ids"]
    shows_prediction(page, tokenizer, plain(ids, 3), 3)
    expect(page).to_have_url(re.compile(r"[?&]after=3\b"))
    page.locator(".st-key-section").get_by_text("Numbers").click()
    expect(page).to_have_url(re.compile(r"[?&]section=Numbers\b"))
    kept = page.locator(".st-key-finding .finding").inner_text()

    other = new_page(app.url)  # another person
    says(other, "After ·is (token 4) the model assigns ·Paris")

    page.reload()
    says(page, kept)
    expect(strip_tokens(page, "tokens-numbers").first).to_be_visible()
    expect(page.locator(".st-key-numbers input")).not_to_have_value("")  # the browser fills it a moment later
    for title in ("Model", "Tokens"):
        go_to(page, title)
    says(page, kept)
    expect(page.locator(".st-key-prompt textarea")).to_have_value(EIFFEL)
    expect(page).to_have_url(re.compile(r"[?&]after=3\b"))
    expect(page.locator(".st-key-tokens-strip [aria-selected=true]")).to_have_attribute(
        "aria-label", re.compile("^token 3,")
    )


def test_an_example_and_the_token_in_front_of_it(new_page, app, plain, tokenizer):
    page = new_page(app.url)
    wait_idle(page)
    choose(page, "frame-example", "A tower, and a BOS token")
    expect(page.locator(".st-key-prompt textarea")).to_have_value(EIFFEL)
    says(page, "·Paris 70.2 %")
    expect(page.get_by_test_id("stSidebar")).to_contain_text("falls to 30 %")
    open_choices(page)
    choose(page, "bos", "Tokenizer's own BOS")
    says(page, "·Paris 30.4 %")
    ids = [tokenizer.bos_token_id, *tokenizer(EIFFEL)["input_ids"]]
    assert strip_ids(page) == ids
    shows_prediction(page, tokenizer, plain(ids), len(ids) - 1)


def test_chat_template_and_special_strings(new_page, app, tokenizer):
    page = new_page(f"{app.url}/?section=Numbers")
    wait_idle(page)
    open_choices(page)
    switch(page, "chat")
    says(page, "With the chat template there are")
    message = [{"role": "user", "content": "The capital of France is"}]
    ids = strip_ids(page)
    assert ids == tokenizer.apply_chat_template(message, add_generation_prompt=True, return_dict=False)
    assert ids[0] == tokenizer.bos_token_id != ids[1]  # exactly one
    switch(page, "chat")
    special = "<|im_start|>user"
    submit(page, special)
    says(page, "became 2 tokens")
    expect(page.get_by_test_id("stMain")).to_contain_text("spells a special token")
    open_choices(page)
    switch(page, "plain")
    says(page, "Your 16 characters became")
    expect(page.get_by_test_id("stMain")).not_to_contain_text("spells a special token")
    ids = strip_ids(page)
    assert tokenizer.bos_token_id not in ids and tokenizer.decode(ids) == special


@contextmanager
def paused_model(server):
    """The process that holds the model answers nobody meanwhile."""
    (child,) = [
        child for child in psutil.Process(server.pid).children(recursive=True) if "app.backend.child" in child.cmdline()
    ]
    child.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        child.send_signal(signal.SIGCONT)


def press(page, slider, key, times, value):
    """Move a slider by keyboard."""
    page.get_by_role("slider", name=slider).focus()
    for _ in range(times):
        page.keyboard.press(key)
    assert page.get_by_role("slider", name=slider).input_value() == value
    wait_idle(page)


def test_sampling_is_explored_without_the_model(new_page, app, plain, tokenizer):
    page = new_page(f"{app.url}/?section=Numbers")
    says(page, "77.3 %")
    logits = plain(tokenizer("The capital of France is")["input_ids"])
    with paused_model(app):
        page.locator(".st-key-sampling").get_by_text("Sampling").click()
        wait_idle(page)
        press(page, "Temperature", "ArrowRight", 20, "2")
        warm = (logits / 2).softmax(-1)
        expect(page.locator(".st-key-tokens-sampling .bartext").nth(10)).not_to_have_text("77.3 %")
        _, values = bars(page, "tokens-sampling")
        top = logits.topk(10).indices
        same_digits(values[:10], logits.softmax(-1)[top])
        same_digits(values[10:20], warm[top])  # shares of the whole vocabulary, not of the ten on the page
        press(page, "Top-k", "ArrowRight", 3, "3")
        expect(page.get_by_test_id("stMain")).to_contain_text("3 tokens of 49,152 can still be drawn")
        expect(page.locator(".st-key-tokens-sampling .bartext", has_text="excluded")).to_have_count(7)
        _, values = bars(page, "tokens-sampling")
        same_digits(values[10:13], (logits[top[:3]] / 2).softmax(-1))


def test_every_section_draws(new_page, app, plain, tokenizer):
    page = new_page(app.url)
    main = page.get_by_test_id("stMain")
    section = page.locator(".st-key-section")
    expect(page.locator(".st-key-tokens-languages .ytick")).to_have_count(17)  # sixteen languages and the prompt
    section.get_by_text("Numbers").click()
    expect(strip_tokens(page, "tokens-numbers").first).to_be_visible()
    assert (
        strip_ids(page, "tokens-numbers") == tokenizer(page.locator(".st-key-numbers input").input_value())["input_ids"]
    )
    section.get_by_text("Words").click()
    for word in ("strawberry", " strawberry"):
        expect(main).to_contain_text(", ".join(map(str, tokenizer(word)["input_ids"])))
    section.get_by_text("BOS").click()
    ids = tokenizer("The capital of France is")["input_ids"]
    (paris,) = tokenizer(" Paris")["input_ids"]
    for front in ([], [tokenizer.bos_token_id]):
        expect(main).to_contain_text(f"{100 * plain(front + ids).softmax(-1)[paris]:.3g} %")


def test_no_prompt_and_prompts_that_are_too_long(new_page, app, tokenizer):
    page = new_page(f"{app.url}/?prompt=&section=Numbers")
    says(page, "An empty prompt has no tokens.")
    assert strip_tokens(page).count() == 0
    text = (MANY * 46).strip()
    submit(page, text)
    says(page, f"Your {len(text):,} characters became 598 tokens")
    assert strip_ids(page) == tokenizer(text)["input_ids"]
    page.locator(".st-key-tokens-strip [role=option]").nth(5).click()  # reads six tokens, however long the prompt is
    says(page, "(token 5)")
    text = (MANY * 631).strip()
    n = len(tokenizer(text)["input_ids"])
    submit(page, text)
    alert = page.get_by_test_id("stMain").get_by_test_id("stAlert")
    expect(alert).to_contain_text(re.compile(rf"needs at most 8,192 tokens.*found {n:,}; ", re.IGNORECASE))
    wait_idle(page)
    open_choices(page)
    choose(page, "keep", "Keep its start")
    expect(page.get_by_test_id("stSidebar")).to_contain_text(f"The end of the prompt was cut: {n - 8192} tokens")
    expect(strip_tokens(page)).to_have_count(8192)
    says(page, "(token 5)")
    expect(alert).to_have_count(0)


def test_a_newer_prompt_and_a_closed_page_stop_the_older_work(new_page, app):
    page = new_page(f"{app.url}/?section=Numbers")
    says(page, "77.3 %")
    long = (MANY * 150).strip()
    wait_idle(page)
    working = page.get_by_test_id("stMain").get_by_test_id("stProgress")
    submit(page, long)
    expect(working).to_contain_text("forward pass")
    assert health(app)["waiting"] == 1
    submit(page, "The capital of Germany is")
    expect(page.locator(".st-key-finding .finding")).to_contain_text("·Berlin", timeout=90_000)
    assert health(app)["waiting"] == 0
    wait_idle(page)
    # Had the long prompt been computed to its end, its answer would be in the cache now.
    submit(page, long)
    expect(working).to_contain_text("forward pass")
    page.close()
    wait_health(app, waiting=0, restarts=0)


def test_the_model_page_says_what_is_loaded(new_page, app, smol_hf):
    page = new_page(f"{app.url}/model", allow=PROBING)
    main = page.get_by_test_id("stMain")
    expect(main).to_contain_text("5 of 5 self-checks passed")
    model, _ = smol_hf
    expect(main).to_contain_text(f"{model.num_parameters():,} parameters in {model.config.num_hidden_layers} layers")
    for fact in ("576", "1,536", "8,192 tokens", "49,152 tokens", "9 per layer", "3 per layer", "tied", "RMSNorm"):
        expect(main).to_contain_text(fact)
    wait_idle(page)


def test_a_phone_never_scrolls_sideways(new_page, app):
    phone = {"width": 390, "height": 844}
    page = new_page(f"{app.url}/?sampling=Sampling&prompt={'x' * 300}", **phone)
    says(page, "Your 300 characters")
    for section in SECTIONS:
        page.locator(".st-key-section").get_by_text(section).click()
        wait_idle(page)
        assert fits_sideways(page), section
    page.get_by_text("Take it with you").click()
    wait_idle(page)
    assert fits_sideways(page)
    page = new_page(f"{app.url}/model", allow=PROBING, **phone)
    expect(page.get_by_test_id("stMain")).to_contain_text("5 of 5 self-checks passed")
    wait_idle(page)
    assert fits_sideways(page)
