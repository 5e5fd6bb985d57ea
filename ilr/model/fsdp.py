"""Fully sharded data parallelism over the banks, for Lightning's ModelParallelStrategy."""

from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor

from ilr.model.config import DecoderConfig
from ilr.model.cost import attention_weights, ffn_weights
from ilr.model.decoder import Decoder
from ilr.model.plan import Plan


def shard(decoder: Decoder, mesh: DeviceMesh) -> None:
    """Shard each bank entry, and the rest as one unit, over the mesh's processes (FSDP2)."""
    for sublayer in (*decoder.attention, *decoder.ffn):
        fully_shard(sublayer, mesh=mesh)
    fully_shard(decoder, mesh=mesh)
    for name in ("nll", "nll_sum"):
        register_fsdp_forward_method(decoder, name)


def gathered_weights(config: DecoderConfig, plan: Plan) -> int:
    """Weights that a process gathers in one forward pass over the banks: traffic follows visits, not weights.

    A sublayer is gathered anew for each visit (the backward pass gathers it once more per visit).
    """
    attention, ffn = attention_weights(config) + config.width, ffn_weights(config) + config.width
    return sum(attention * (v.attention is not None) + ffn * (v.ffn is not None) for v in plan.visits)


def whole(tensor: Tensor) -> Tensor:
    """A tensor's full value, gathered where it is sharded."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
