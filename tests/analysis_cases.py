"""Tiny decoders, uneven batches and the states of their visits, for the tests of the analysis."""

import torch
from torch import Tensor

from ilr.model.config import DecoderConfig
from ilr.model.decoder import Decoder
from ilr.model.metrics import IGNORED
from ilr.model.plan import Plan, Segment, make_plan
from ilr.model.positions import Span

PLANS = [
    make_plan([3, 2, 1, 1]),
    make_plan([1, 1, 2, 2], sharing="all"),
    make_plan([Segment((0,)), Segment((1, 2), 3), Segment((3,))]),
    make_plan([Segment((0, 1), 2), Segment((2,), 2, "attention"), Segment((3, 2)), Segment((3,), 2, "ffn")]),
]
CPU = torch.device("cpu")


def tiny_decoder(plan: Plan, **changes) -> Decoder:
    config = DecoderConfig(
        **{"vocab_size": 29, "context": 12, "width": 8, "num_layers": 4, "num_heads": 2, "ffn_width": 12}
        | {"init_std": 0.4}
        | changes
    )
    return Decoder(config, plan).double()


def batches(rows: tuple[int, ...] = (3, 2), length: int = 12) -> list[dict[str, Tensor]]:
    """Random tokens; the last row of the last batch scores only its first five targets, documents change."""
    generator = torch.Generator().manual_seed(7)
    made = []
    for number, count in enumerate(rows):
        tokens = torch.randint(29, (count, length + 1), generator=generator)
        documents = (torch.arange(count * length).view(count, length) + number * 40) // 9
        made.append({"inputs": tokens[:, :-1], "targets": tokens[:, 1:].clone(), "documents": documents})
    made[-1]["targets"][-1, 5:] = IGNORED
    made[-1]["documents"][-1, 5:] = -1
    return made


def states_of(decoder: Decoder, plan: Plan, inputs: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """Before and after every visit, by a loop that knows the modules but not the decoder's own loop."""
    index = decoder.positions.index(Span(0, inputs.shape[1], None, CPU, torch.float64))
    x = start = decoder.embedding(inputs)
    before, after = [], []
    for one in plan.passes():
        if one.repetition == 0:
            start = x
        elif decoder.config.injection == "add":
            x = x + start
        for visit in one.visits:
            before.append(x)
            if visit.attention is not None:
                x = x + decoder.attention[visit.attention](x, index)
            if visit.ffn is not None:
                x = x + decoder.ffn[visit.ffn](x)
            after.append(x)
    return before, after
