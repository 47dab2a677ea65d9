"""Ten starter prompts, each with what to look for.

The numbers are the embedded model's; tests/app/test_examples.py checks them.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Example:
    """A prompt that shows something."""

    name: str
    prompt: str
    look_for: str


EXAMPLES = (
    Example(
        "A capital",
        "The capital of France is",
        "Five tokens, one per word, all but the first with their leading space. The model assigns Paris 77 %.",
    ),
    Example(
        "A tower, and a BOS token",
        "The Eiffel Tower is located in the city of",
        "One word, Eiffel, is two tokens. Paris gets 70 %; put the tokenizer's own BOS in front and it falls to 30 %.",
    ),
    Example(
        "Who gets the bag",
        "When John and Mary went to the store, John gave the bag to",
        "Mary gets 90 %, John 2 %: the name that was said once wins over the name that was said twice.",
    ),
    Example(
        "Likely and wrong",
        "Water is made of hydrogen and",
        "Helium 43 %, oxygen 17 %. A probability is not a fact.",
    ),
    Example(
        "An open story",
        "Once upon a time there was a",
        "No token passes 8 %. Lower the temperature and watch the same distribution sharpen.",
    ),
    Example(
        "Arithmetic",
        "127 + 48 =",
        "Every digit is a token of its own, and the model first says a space (95 %): the answer would come digit by digit.",
    ),
    Example(
        "Strawberry twice",
        "strawberry, strawberry",
        "The first is three tokens, the second, with its space, is one. No token lists the letters inside it.",
    ),
    Example(
        "Chinese",
        "人人生而自由，在尊严和权利上一律平等。",
        "19 characters, 29 tokens: many tokens are parts of a character, shown as bytes.",
    ),
    Example(
        "Emoji",
        "🙂 🦙 👩‍🚀",
        "Three pictures, 13 tokens. The astronaut is a woman, an invisible joiner and a rocket.",
    ),
    Example(
        "A repeated list",
        "The code is 7 blue kiwi lamp. Repeat: 7 blue kiwi",
        "Lamp gets 57 %: it followed kiwi before. Put another word there and it changes. "
        "Induction heads are known to copy like this.",
    ),
)


def look_for(prompt: str) -> str:
    """What to look for in this prompt; "" when it is not one of the examples."""
    return next((example.look_for for example in EXAMPLES if example.prompt == prompt), "")
