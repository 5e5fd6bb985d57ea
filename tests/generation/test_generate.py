"""Generation: cached as uncached, batched as alone, past the context, and nothing left behind."""

import pytest
import torch

from ilr.errors import InputError
from ilr.generation.decode import Predictor, generate
from ilr.generation.sampling import Sampling
from ilr.generation.windows import window_start
from ilr.model.config import DecoderConfig
from ilr.model.decoder import Decoder
from ilr.model.plan import Segment, make_plan

PLANS = [
    make_plan([1, 1, 1, 1]),
    make_plan([3, 2, 1, 1]),
    make_plan([2, 1, 1, 2], sharing="all"),
    make_plan([3, 2, 1, 1], sharing="attention"),
    make_plan([Segment((0,)), Segment((1, 2), 2), Segment((3,))]),
    make_plan([Segment((0,), 2, "attention"), Segment((1, 2, 3)), Segment((3,), 2, "ffn")]),
]
GREEDY = Sampling(temperature=0)
PROMPTS = [[5, 1, 2], [7, 7, 3, 9, 11, 4, 8, 20, 6], [30]]


def tiny_decoder(plan=PLANS[1], **changes) -> Decoder:
    config = DecoderConfig(
        **{
            "vocab_size": 37,
            "context": 16,
            "width": 16,
            "num_layers": 4,
            "num_heads": 4,
            "num_kv_heads": 2,
            "ffn_width": 24,
        }
        | {"init_std": 0.3}
        | changes
    )
    return Decoder(config, plan).double()


@pytest.mark.parametrize("positions", ["rope", "alibi", "learned", "none"])
@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.label)
def test_cached_and_uncached_greedy_texts_are_equal(plan, positions) -> None:
    decoder = tiny_decoder(plan, positions=positions)
    cached = generate(decoder, PROMPTS, 8, sampling=GREEDY)
    assert cached == generate(decoder, PROMPTS, 8, sampling=GREEDY, use_cache=False)
    assert cached == [generate(decoder, [prompt], 8, sampling=GREEDY)[0] for prompt in PROMPTS]


@pytest.mark.parametrize("positions", ["rope", "alibi", "none"])
@pytest.mark.parametrize("plan", PLANS[1:3], ids=lambda plan: plan.label)
def test_past_the_context_cached_and_uncached_logits_of_every_step_are_equal(plan, positions) -> None:
    decoder = tiny_decoder(plan, positions=positions)
    rows = [list(prompt) for prompt in PROMPTS]
    cached, uncached = Predictor(decoder, plan, use_cache=True), Predictor(decoder, plan, use_cache=False)
    with torch.no_grad():
        for _ in range(40):
            expected = uncached.next_logits(rows)
            torch.testing.assert_close(cached.next_logits(rows), expected, rtol=0, atol=1e-12)
            for row, token in zip(rows, expected.argmax(-1).tolist(), strict=True):
                row.append(token)


@pytest.mark.parametrize("positions", ["rope", "alibi", "none"])
def test_past_the_context_forty_tokens_come_and_equal_those_generated_alone(positions) -> None:
    decoder = tiny_decoder(positions=positions)
    texts = generate(decoder, PROMPTS, 40, sampling=GREEDY)
    assert [len(text) for text in texts] == [40, 40, 40]
    assert texts == generate(decoder, PROMPTS, 40, sampling=GREEDY, use_cache=False)
    assert texts == [generate(decoder, [prompt], 40, sampling=GREEDY)[0] for prompt in PROMPTS]


def test_learned_positions_stop_at_the_context_and_name_both_lengths() -> None:
    decoder = tiny_decoder(positions="learned")
    with pytest.raises(InputError, match=r"end at the context of 16 tokens.*need 48.*room for 8"):
        generate(decoder, [PROMPTS[1]], 40)
    assert len(generate(decoder, [PROMPTS[1]], 8)[0]) == 8
    with pytest.raises(InputError, match="room for 0"):
        generate(decoder, [[1] * 17], 1)


@pytest.mark.parametrize("context", [1, 2, 5, 16])
def test_a_window_never_exceeds_the_context_nor_falls_below_half(context) -> None:
    for length in range(1, 5 * context + 2):
        start = window_start(length, context)
        seen = length - start
        assert seen <= context
        assert start == 0 if length <= context else seen > context - max(context // 2, 1)
        assert start <= window_start(length + 1, context)


def test_the_window_of_a_long_prompt_is_what_the_next_token_depends_on() -> None:
    decoder = tiny_decoder()
    prompt = [3, 1, 4, 1, 5, 9, 2, 6] * 4
    start = window_start(len(prompt), 16)
    other = [(token + 1) % 37 for token in prompt[:start]] + prompt[start:]
    with torch.no_grad():
        logits = [
            Predictor(decoder, decoder.plan, True).next_logits([text])
            for text in (prompt, other, prompt[start:])
        ]
    assert torch.equal(logits[0], logits[1])
    assert torch.equal(logits[0], logits[2])


def test_samples_do_not_depend_on_company_or_cache() -> None:
    decoder = tiny_decoder()
    sampling = Sampling(temperature=1.3, top_k=20, top_p=0.95, seed=4)
    together = generate(decoder, PROMPTS, 30, sampling=sampling, num_samples=3)
    assert together == generate(decoder, PROMPTS, 30, sampling=sampling, num_samples=3, use_cache=False)
    alone = [
        text
        for prompt in PROMPTS
        for text in generate(decoder, [prompt], 30, sampling=sampling, num_samples=3)
    ]
    assert together == alone
    assert together[:1] == generate(decoder, PROMPTS[:1], 30, sampling=sampling)
    assert len({tuple(text) for text in together}) == 9
    assert together != generate(decoder, PROMPTS, 30, sampling=Sampling(1.3, 20, 0.95, seed=5), num_samples=3)


def test_generating_twice_gives_the_same_and_leaves_training_flags_and_generator_alone() -> None:
    decoder = tiny_decoder(dropout=0.5)
    decoder.train()
    decoder.ffn[1].eval()
    flags = [part.training for part in decoder.modules()]
    state = torch.get_rng_state()
    first = generate(decoder, PROMPTS, 6)
    assert first == generate(decoder, PROMPTS, 6)
    assert [part.training for part in decoder.modules()] == flags
    assert torch.equal(torch.get_rng_state(), state)
    decoder.eval()
    assert first == generate(decoder, PROMPTS, 6), "dropout was on"


def test_a_row_ends_with_the_end_token_and_others_go_on() -> None:
    decoder = tiny_decoder()
    whole = generate(decoder, PROMPTS, 12, sampling=GREEDY)
    end = whole[0][4]
    assert whole[0].index(end) == 4, "choose another end token"
    seen: list[tuple[int, int]] = []
    ended = generate(
        decoder, PROMPTS, 12, sampling=GREEDY, end=end, on_token=lambda row, token: seen.append((row, token))
    )
    for row, text in enumerate(ended):
        stop = whole[row].index(end) + 1 if end in whole[row] else 12
        assert text == whole[row][:stop]
        assert text == [token for at, token in seen if at == row]


def test_another_schedule_writes_as_a_decoder_made_with_it() -> None:
    decoder = tiny_decoder(PLANS[1])
    other = tiny_decoder(make_plan([1, 2, 1, 3]))
    other.load_state_dict(decoder.state_dict())
    plan = decoder.plan_for([1, 2, 1, 3])
    assert generate(decoder, PROMPTS, 20, sampling=GREEDY, plan=plan) == generate(
        other, PROMPTS, 20, sampling=GREEDY
    )


@pytest.mark.parametrize(
    ("prompts", "count", "message"),
    [
        ([[]], 3, "at least one token"),
        ([[1], [37]], 3, "token 37 of a prompt is not in the vocabulary of 37"),
        ([[-1]], 3, "token -1"),
        ([[1]], 0, "max_new_tokens must be at least 1, got 0"),
        ([], 3, "prompts must be at least 1, got 0"),
    ],
)
def test_wrong_use_is_refused_in_one_line(prompts, count, message) -> None:
    with pytest.raises(InputError, match=message):
        generate(tiny_decoder(), prompts, count)


def test_a_plan_that_the_banks_lack_and_weights_that_diverged_are_refused() -> None:
    decoder = tiny_decoder(make_plan([1, 1, 1, 1], sharing="all"))
    with pytest.raises(InputError, match="needs 4 attention"):
        generate(decoder, [[1]], 2, plan=make_plan([1, 1, 1, 1]))
    with torch.no_grad():
        decoder.norm.weight.fill_(float("nan"))
    with pytest.raises(InputError, match="not finite"):
        generate(decoder, [[1]], 2)
