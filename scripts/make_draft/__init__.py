"""Parts of scripts/make-draft, which says what they are for."""

from __future__ import annotations

import sys

PROMPT_TOKENS = 512  # longer prompts are left out
ANSWER_TOKENS = 192
FEWEST = 32  # prompts; fewer teach nothing


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
