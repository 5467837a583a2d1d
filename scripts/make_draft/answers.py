"""The target's answers, with the states that its tokens were chosen from."""

from __future__ import annotations

import random
import time
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from make_draft import ANSWER_TOKENS, say
from make_draft.llama import Llama, causal

if TYPE_CHECKING:
    from torch import Tensor

ROWS = 128  # prompts answered at once
TEMPERATURES = (0.0, 0.0, 0.7, 1.0)  # by row: greedy answers loop in a small model, so half of them are sampled


def answer(
    target: Llama, prompts: list[list[int]], ends: set[int], seed: int, temperatures: tuple[float, ...] = TEMPERATURES
) -> dict[str, Tensor]:
    """The target's answers to some prompts at once, with the hidden state that each token was chosen from."""
    import torch

    dice = torch.Generator().manual_seed(seed)
    rows, width = len(prompts), max(map(len, prompts))
    first = torch.tensor([width - len(prompt) for prompt in prompts])
    tokens = torch.zeros(rows, width + ANSWER_TOKENS, dtype=torch.long)
    for row, prompt in enumerate(prompts):
        tokens[row, first[row] : width] = torch.tensor(prompt)
    warmth = torch.tensor([temperatures[row % len(temperatures)] for row in range(rows)])[:, None]
    size = (2, rows, target.shape.n_head_kv, width + ANSWER_TOKENS, target.shape.head)
    cache = [torch.zeros(size, dtype=target.dtype) for _ in range(target.shape.n_layer)]
    state = target(tokens[:, :width], causal(first, width), cache)[:, -1]
    speaking = torch.ones(rows, dtype=torch.bool)
    states, valid = [], []
    for column in range(width, width + ANSWER_TOKENS):
        logits = torch.nn.functional.linear(state, target.head).float()
        likely, ids = logits.topk(40)
        noise = -torch.empty_like(likely).exponential_(generator=dice).log_()  # Gumbel: argmax then samples
        chosen = ids.gather(1, (likely + warmth * noise).argmax(-1, keepdim=True))[:, 0]
        states.append(state)
        valid.append(speaking)
        tokens[:, column] = chosen
        speaking = speaking & ~torch.isin(chosen, torch.tensor(sorted(ends)))
        if speaking.sum() < rows / 4:  # the few long ones are cut short: the others would only wait
            break
        seen = (torch.arange(column + 1) >= first[:, None])[:, None, None]
        state = target(chosen[:, None], seen, cache, column)[:, 0]
    return {
        "tokens": tokens[:, : column + 1].to(torch.int32),
        "first": first,
        "width": torch.tensor(width),
        "states": torch.stack(states, 1),
        "valid": torch.stack(valid, 1),
    }


def shared(prompts: list[list[int]]) -> list[int]:
    """The tokens all prompts begin with: those of the chat template."""
    same = takewhile(lambda column: len(set(column)) == 1, zip(*prompts, strict=False))
    return [column[0] for column in same]


def invented(target: Llama, prompts: list[list[int]], ends: set[int], seed: int) -> list[list[int]]:
    """Prompts that the target makes up itself when it is to go on where a user would speak (Magpie, arXiv 2406.08464):
    they are as varied as what it was trained on, and in its languages."""
    frame, tail = shared(prompts), shared([prompt[::-1] for prompt in prompts])[::-1]
    batch = answer(target, [frame] * (ROWS + ROWS // 2), ends, seed, (1.0,))
    said = batch["tokens"][:, len(frame) :].tolist()
    spoken = [row[: int(count) - 1] for row, count in zip(said, batch["valid"].sum(1), strict=True)]
    whole = [row for row, all_of_it in zip(spoken, said, strict=True) if row and all_of_it[len(row)] in ends]
    return sorted(([*frame, *row, *tail] for row in whole[:ROWS]), key=len)


def alike(prompts: list[list[int]], seed: int) -> list[list[list[int]]]:
    """Batches of prompts of about the same length, for less padding; the first is a plain sample, to judge by."""
    judged = min(ROWS, len(prompts) // 4)
    first, rest = prompts[:judged], prompts[judged:]
    windows = [sorted(rest[at : at + 8 * ROWS], key=len) for at in range(0, len(rest), 8 * ROWS)]
    batches = [window[at : at + ROWS] for window in windows for at in range(0, len(window), ROWS)]
    random.Random(seed).shuffle(batches)
    return [sorted(first, key=len), *batches]


def generate(target: Llama, prompts: list[list[int]], ends: set[int], folder: Path, seed: int, seconds: float) -> int:
    """Batches of answers as files, until the time is over, an earlier run's included; returns how many there are.

    Every other batch answers prompts that the target made up.
    """
    import torch

    batches = alike(prompts, seed)
    spent, number, answered, said = 0.0, 0, 0, time.monotonic()
    while True:
        path = folder / f"answers-{number:04}.pt"
        began = time.monotonic()
        if not path.exists():
            if spent >= seconds and number > 1:
                return number
            told = batches[1 + (number // 2 - 1) % (len(batches) - 1)] if number else batches[0]
            asked = invented(target, prompts, ends, seed + number) if number % 2 else told
            batch = answer(target, asked, ends, seed + number)
            save(batch | {"seconds": torch.tensor(time.monotonic() - began)}, path)
        batch = torch.load(path)
        answered += int(batch["valid"].sum())
        spent += float(batch["seconds"])
        number += 1
        if time.monotonic() - said > 20:
            said = time.monotonic()
            say(f"{answered:,} tokens answered, {spent / seconds:.0%} of the time")


def save(values: Any, path: Path) -> None:
    """A file that is there whole or not at all."""
    import torch

    part = path.with_name(path.name + ".part")
    torch.save(values, part)
    part.replace(path)
