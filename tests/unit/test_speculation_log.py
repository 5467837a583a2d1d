"""What the server's log says of speculation; the lines are those of real starts."""

from __future__ import annotations

import pytest

from orin_deploy.deploy.drafting import active
from orin_deploy.host.processes import START_MARK
from orin_deploy.intent.spec import Draft
from orin_deploy.parts import serverlog

MARK = f"{START_MARK}, start 1, 2026-11-30T19:30:00+0000"
ADDED = "0.00.153.459 I spec common_specu: adding speculative implementation '{}'"
STATISTICS = (
    "0.01.192.404 I spec common_specu: statistics     {}: #calls(b,g,a) =    1     16      3, #gen drafts =      3, "
    "#acc drafts =     3, #gen tokens = {:6d}, #acc tokens = {:5d}, #mean acc len = 11.00"
)
DFLASH = "0.00.204.203 I common_speculative_impl_draft_dflash: adding speculative implementation 'draft-dspark'"
FAILED = (
    "0.00.2 W spec common_specu: draft model vocab type must match target model to use speculation but …",
    "0.00.3 E srv  load_model: failed to initialize speculative decoding context: DSpark draft has no confidence head",
)
NONE = "0.00.145.602 I spec common_specu: no implementations specified for speculative decoding"


def test_kinds_are_those_of_the_last_start() -> None:
    log = [MARK, ADDED.format("draft-simple"), MARK, ADDED.format("ngram-mod"), DFLASH]
    assert serverlog.speculation(log) == ("ngram-mod", "draft-dspark")
    assert serverlog.speculation([]) == ()


def test_the_last_word_on_each_kind_counts() -> None:
    log = [
        MARK, STATISTICS.format("draft-simple", 999, 999), MARK, STATISTICS.format("draft-simple", 61, 30),
        STATISTICS.format("ngram-mod", 10, 5), STATISTICS.format("draft-simple", 80, 40),
    ]  # fmt: skip
    assert serverlog.drafted(log) == (90, 45)
    assert serverlog.drafted([MARK]) is None


@pytest.mark.parametrize(
    ("lines", "said"),
    [(FAILED, "no confidence head"), ((NONE,), "no implementations"), ((), None), ((ADDED.format("ngram-mod"),), None)],
)
def test_the_reason_for_no_speculation_is_the_servers(lines: tuple[str, ...], said: str | None) -> None:
    reason = serverlog.not_speculating([MARK, *lines])
    assert (reason is None) == (said is None)
    assert said is None or (reason is not None and said in reason)


def test_active_means_every_slot_and_the_planned_kind() -> None:
    draft, log = Draft("draft-simple", others=("ngram-mod",)), [MARK, ADDED.format("ngram-mod")]
    whole = [*log, ADDED.format("draft-simple")]
    yes, no = {"speculative": True}, {"speculative": False}
    assert list(active(draft, [yes, yes], whole)) == []
    assert list(active(draft, [yes, yes], log)) == ["the log names no draft-simple, it names ngram-mod"]
    for slots in ([yes, no], [no], [], None):
        assert list(active(draft, slots, whole)) == ["the server does not speculate, planned ngram-mod,draft-simple"]
    assert "no confidence head" in next(active(draft, [no], [MARK, *FAILED]))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("/x/llama-graph.cpp:1384: GGML_ASSERT(t_layer_inp[il] != nullptr && \"layer input tensor is null\") failed",
         "reads layers of its target"),
        ("/x/ggml-rpc.cpp:543: Remote RPC server crashed or returned malformed response", "draft's own process ended"),
        ("/x/ggml-rpc.cpp:547: Failed to connect to 127.0.0.1:50052", "cannot reach the draft's own process"),
    ],
)  # fmt: skip
def test_ends_that_are_the_drafts_are_told_so(line: str, words: str) -> None:
    reason = serverlog.reason([MARK, line])
    assert reason is not None
    assert words in reason[0]
    assert reason[1]
