"""Training: the draft's layers learn the target's own distribution of the next token."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from make_draft import say
from make_draft.answers import save
from make_draft.llama import Llama, causal

if TYPE_CHECKING:
    from torch import Tensor

STEP_ROWS = 16  # answers in one training step
LEARNING_RATE = 1e-3


def kept(target: Llama, batch: dict[str, Tensor], layers: int) -> list[int]:
    """The layers the draft begins as: those that turn the states most, by the cosine of what goes in and comes out
    (the block influence of ShortGPT, arXiv 2403.03853)."""
    import torch

    tokens = batch["tokens"].long()[:, :-1]
    mask, answers = causal(batch["first"], tokens.shape[1]), slice(int(batch["width"]) - 1, None)
    x = target.weights["token_embd"][tokens].float()
    likeness = []
    for index in range(target.shape.n_layer):
        before, x = x, target.layer(x, index, mask)
        cosine = torch.nn.functional.cosine_similarity(before, x, dim=-1)[:, answers][batch["valid"]]
        likeness.append(float(cosine.mean()))
    return sorted(sorted(range(len(likeness)), key=likeness.__getitem__)[:layers])


def hidden_states(draft: Llama, batch: dict[str, Tensor]) -> Tensor:
    """The draft's states [answer tokens, width] from which it would guess each token of a batch's answers."""
    tokens, width = batch["tokens"].long()[:, :-1], int(batch["width"])
    return draft(tokens, causal(batch["first"], tokens.shape[1]))[:, width - 1 :][batch["valid"]]


def learn(draft: Llama, head: Tensor, batch: dict[str, Tensor]) -> None:
    """Leave the gradient of KL(target || draft), averaged over the tokens of a batch, in the draft's weights.

    By the logits that gradient is the difference of the two distributions, so the output matrix needs no graph; `head`
    is the rows of it that take part.
    """
    import torch

    mine, theirs = hidden_states(draft, batch), batch["states"][batch["valid"]].to(head.dtype)
    gradient = torch.empty_like(mine)
    with torch.no_grad():
        for at in range(0, len(mine), 64):  # few enough that the probabilities stay in the CPU's cache
            part = slice(at, at + 64)
            guess = torch.nn.functional.linear(mine[part], head).float().softmax(-1)
            guess -= torch.nn.functional.linear(theirs[part], head).float().softmax(-1)
            gradient[part] = (guess.to(head.dtype) @ head) / len(mine)
    mine.backward(gradient)


def agreement(draft: Llama, head: Tensor, batch: dict[str, Tensor]) -> str:
    """How often the draft's first guess is the target's, on answers that it does not learn from."""
    import torch

    right = divergence = 0.0
    with torch.no_grad():
        for rows in (cut(batch, at, at + STEP_ROWS) for at in range(0, len(batch["first"]), STEP_ROWS)):
            told = rows["states"][rows["valid"]].to(head.dtype)
            for states in zip(hidden_states(draft, rows).split(64), told.split(64), strict=True):
                mine, theirs = (torch.nn.functional.linear(state, head).float().log_softmax(-1) for state in states)
                right += float((mine.argmax(-1) == theirs.argmax(-1)).sum())
                divergence += float((theirs.exp() * (theirs - mine)).sum())
    count = int(batch["valid"].sum())
    return f"{right / count:.1%} of its first guesses are the target's (divergence {divergence / count:.3f})"


def heads(head: Tensor, answers: list[dict[str, Tensor]], seed: int) -> Iterator[Tensor]:
    """The rows of the output matrix for each training step: the tokens that occur in any answer or prompt, and a tenth
    of the others in turn, which keeps their probability down at a fraction of the work."""
    import torch

    dice = torch.Generator().manual_seed(seed)
    seen = torch.zeros(len(head), dtype=torch.bool)
    for batch in answers:
        seen[batch["tokens"].long().flatten()] = True
    while True:
        yield head[seen | (torch.rand(len(head), generator=dice) < 0.1)]


def steps(answers: list[dict[str, Tensor]], seed: int) -> Iterator[dict[str, Tensor]]:
    """Training steps without end: some rows of one batch of answers, all in a new order each time round."""
    dice = random.Random(seed)
    order = [(batch, at) for batch in answers for at in range(0, len(batch["first"]), STEP_ROWS)]
    while True:
        dice.shuffle(order)
        for batch, at in order:
            yield cut(batch, at, at + STEP_ROWS)


def cut(batch: dict[str, Tensor], begin: int, end: int) -> dict[str, Tensor]:
    """Some rows of a batch, without the columns that none of them uses."""
    rows = {name: value[begin:end] if value.dim() else value for name, value in batch.items()}
    margin = int(rows["first"].min())
    columns = int(rows["valid"].any(0).sum())
    width = int(rows["width"]) - margin
    return {
        "tokens": rows["tokens"][:, margin : margin + width + columns],
        "first": rows["first"] - margin,
        "width": rows["width"] - margin,
        "states": rows["states"][:, :columns],
        "valid": rows["valid"][:, :columns],
    }


def train(draft: Llama, head: Tensor, folder: Path, count: int, seed: int, seconds: float) -> None:
    """Train the draft's layers until the time is over, going on from the last checkpoint."""
    import torch

    trained = {n: w.requires_grad_() for n, w in draft.weights.items() if n.startswith("blk.") or n == "output_norm"}
    optimizer = torch.optim.AdamW(trained.values(), lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.0)
    judge, *answers = (torch.load(folder / f"answers-{number:04}.pt") for number in range(count))
    held_out = {name: value[::4] if value.dim() else value for name, value in judge.items()}
    checkpoint, spent, step = folder / f"checkpoint-{draft.shape.n_layer}.pt", 0.0, 0
    if checkpoint.exists():
        was = torch.load(checkpoint)
        spent, step = was["seconds"], was["step"]
        optimizer.load_state_dict(was["optimizer"])
        with torch.no_grad():
            for name, weight in was["weights"].items():
                trained[name].copy_(weight)
    say(f"step {step}: {agreement(draft, head, held_out)}")
    saved = time.monotonic()
    rows = heads(head, answers, seed + step)
    for batch in steps(answers, seed + step):
        if spent >= seconds:
            break
        began = time.monotonic()
        for group in optimizer.param_groups:  # a short rise, then down to nothing when the time is over
            group["lr"] = LEARNING_RATE * min(1.0, (step + 1) / 30) * max(0.02, 1 - spent / seconds)
        learn(draft, next(rows), batch)
        torch.nn.utils.clip_grad_norm_(trained.values(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        spent += time.monotonic() - began
        if time.monotonic() - saved > 60 or spent >= seconds:
            weights = {name: weight.detach() for name, weight in trained.items()}
            values = {"weights": weights, "optimizer": optimizer.state_dict(), "seconds": spent, "step": step}
            save(values, checkpoint)
            say(f"step {step}, {min(1.0, spent / seconds):.0%} of the time: {agreement(draft, head, held_out)}")
            saved = time.monotonic()
