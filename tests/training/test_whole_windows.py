"""Right numbers, point 3: every step takes a whole window, whatever option or callback would cut it."""

from typing import Any

import lightning as L
import pytest
import torch
from training_cases import Spy, tiny_model, tiny_text, train, weights

from ilr.errors import InputError


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("cache"))


SMALL = {"max_train_tokens": 400, "document": "paragraph"}
"""About two dozen blocks: epochs of a few micro-batches."""


@pytest.mark.parametrize(
    ("accumulate", "limit", "epochs"),
    [(1, 3, 2), (2, 4, 2), (2, 0.5, 3), (4, 0.9, 1), (4, 1.0, 2), (3, 1.0, 2), (3, 6, 2), (2, 10_000, 1)],
)
def test_what_is_announced_and_booked_is_what_was_seen(
    cache: str, accumulate: int, limit: int | float, epochs: int
) -> None:
    """Right numbers, point 3: a spy counts the positions and the micro-batches of every step."""
    model, data, spy = tiny_model(), tiny_text(cache, **SMALL), Spy()
    options: dict[str, Any] = {"accumulate_grad_batches": accumulate, "limit_train_batches": limit}
    trainer = train(model, data, callbacks=[spy], **{**options, "max_epochs": epochs})
    whole = data.train_blocks // (2 * accumulate) * accumulate
    share = limit if isinstance(limit, int) else int(whole * limit)
    per_epoch = min(share, whole) // accumulate
    assert trainer.global_step == model.horizon == epochs * per_epoch
    assert spy.windows == [accumulate] * trainer.global_step
    assert spy.positions == trainer.global_step * 2 * 16 * accumulate == epochs * data.tokens_per_epoch
    blocks = [block for batch in spy.blocks for block in batch]
    for epoch in range(epochs):
        own = blocks[epoch * 2 * per_epoch * accumulate :][: 2 * per_epoch * accumulate]
        assert len(set(own)) == len(own)  # none twice in an epoch


def test_a_limited_epoch_trains_as_the_beginning_of_the_whole_one(cache: str) -> None:
    """Right numbers, point 3: the updates are those of full windows."""

    def run(**options: Any) -> dict[str, torch.Tensor]:
        model = tiny_model(lr_schedule="constant")
        train(model, tiny_text(cache, **SMALL), accumulate_grad_batches=2, **options)
        return weights(model)

    limited, whole = run(limit_train_batches=4, max_epochs=1), run(steps=2)
    for key in whole:
        torch.testing.assert_close(limited[key], whole[key], rtol=0, atol=0)


@pytest.mark.parametrize(("accumulate", "limit"), [(2, 3), (4, 3), (1, 0), (4, 0.1), (2, 1)])
def test_a_limit_that_holds_no_whole_windows_is_refused_by_name(
    cache: str, accumulate: int, limit: int | float
) -> None:
    """Right numbers, point 3: the last step would take a part of a gradient, or there would be none."""
    options: dict[str, Any] = {"accumulate_grad_batches": accumulate, "limit_train_batches": limit}
    with pytest.raises(InputError, match=f"--trainer.limit_train_batches {limit} does not hold whole steps"):
        train(tiny_model(), tiny_text(cache, **SMALL), **{**options, "max_epochs": 1})


def test_a_stop_amid_a_window_waits_for_its_end(cache: str) -> None:
    """Right numbers, point 3: a clock knows no windows; going on later must not begin amid one."""

    class Stop(L.Callback):
        def on_train_batch_end(
            self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int
        ) -> None:
            if batch_idx == 5:  # the second of the second window's four
                trainer.should_stop = True

    spy = Spy()
    trainer = train(tiny_model(), tiny_text(cache), 9, callbacks=[Stop(), spy], accumulate_grad_batches=4)
    assert trainer.global_step == 2
    assert spy.windows == [4, 4]
    assert spy.positions == 2 * 4 * 32


@pytest.mark.parametrize("when", ["on_train_start", "on_train_batch_start"])
def test_a_callback_that_cuts_the_windows_is_noticed(cache: str, when: str) -> None:
    """Right numbers, point 3: no step of another size is booked as a whole one."""

    class Cut(L.Callback):
        pass

    def cut(trainer: Any, *rest: Any) -> None:
        trainer.accumulate_grad_batches = 2

    callback = Cut()
    setattr(callback, when, cut)
    with pytest.raises(InputError, match="step 1 took 64 tokens, a step was announced as 128"):
        train(tiny_model(), tiny_text(cache), 3, callbacks=[callback], accumulate_grad_batches=4)


@pytest.mark.parametrize(
    ("options", "named"),
    [({"min_steps": 9}, "min_steps 9 is more than"), ({"min_epochs": 1}, "min_epochs 1 must end before")],
    ids=["steps", "epochs"],
)
def test_a_minimum_past_the_last_step_is_refused(cache: str, options: dict[str, Any], named: str) -> None:
    """Right numbers, point 1: Lightning would not validate at the last step, and an older figure be called the last."""
    with pytest.raises(InputError, match=named):
        train(tiny_model(), tiny_text(cache), 4, **options)
