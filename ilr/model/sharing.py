"""Which weights each layer uses: a bank index per layer, attention and feed-forward apart; no torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ilr.bounds import MOST_LAYERS, check_count, is_integer, shown
from ilr.errors import InputError

SharingName = Literal["none", "attention", "ffn", "all"]

SHARING_EXAMPLES = (
    "none, attention, ffn, all, or a bank index per layer such as {attention: [0,0,0,0], ffn: [0,1,2,3]}"
)


@dataclass(frozen=True)
class Sharing:
    """The bank entry that each layer uses: attention and feed-forward separately.

    Bank indices start at 0 and leave none out, so the number of distinct weights is the largest plus one.
    """

    attention: tuple[int, ...]
    ffn: tuple[int, ...]

    def __post_init__(self) -> None:
        for kind in ("attention", "ffn"):
            banks = getattr(self, kind)
            if isinstance(banks, str | bytes) or not isinstance(banks, Sequence) or not banks:
                raise InputError(f"sharing of {kind} must be a list of bank indices, got {shown(banks)}")
            if not all(is_integer(bank) and bank >= 0 for bank in banks):
                raise InputError(f"sharing of {kind} must be whole numbers from 0, got {shown(list(banks))}")
            if len(banks) > MOST_LAYERS:
                raise InputError(
                    f"sharing of {kind} must be for at most {MOST_LAYERS:,} layers, got {len(banks):,}"
                )
            if set(banks) != set(range(min(max(banks), len(banks)) + 1)):
                raise InputError(
                    f"sharing of {kind} must use every bank index from 0 to its largest, got {shown(list(banks))}"
                )
            object.__setattr__(self, kind, tuple(banks))
        if len(self.attention) != len(self.ffn):
            raise InputError(
                "sharing needs one attention and one ffn index per layer, "
                f"got {len(self.attention)} and {len(self.ffn)}"
            )

    @classmethod
    def named(cls, name: SharingName, num_layers: int) -> "Sharing":
        """One of the ALBERT ablation's modes (arXiv 1909.11942): what the layers have in common."""
        check_count("num_layers", num_layers, MOST_LAYERS)
        own, common = tuple(range(num_layers)), (0,) * num_layers
        modes = {
            "none": (own, own),
            "attention": (common, own),
            "ffn": (own, common),
            "all": (common, common),
        }
        if name not in modes:
            raise InputError(f"sharing must be {SHARING_EXAMPLES}; got {shown(name)}")
        return cls(*modes[name])

    @classmethod
    def groups(cls, num_layers: int, size: int) -> "Sharing":
        """ALBERT's groups of M: each ``size`` consecutive layers have all weights in common."""
        check_count("num_layers", num_layers, MOST_LAYERS)
        if not is_integer(size) or size < 1:
            raise InputError(f"a group needs a whole number of at least 1 layers, got {shown(size)}")
        banks = tuple(layer // size for layer in range(num_layers))
        return cls(banks, banks)

    @classmethod
    def sandwich(cls, num_layers: int) -> "Sharing":
        """First and last layer their own, all between in common (Subformer, arXiv 2101.00234)."""
        check_count("num_layers", num_layers, MOST_LAYERS)
        if num_layers < 3:
            raise InputError(f"sandwich sharing needs at least 3 layers, got {num_layers}")
        banks = (0, *(1,) * (num_layers - 2), 2)
        return cls(banks, banks)

    @property
    def num_layers(self) -> int:
        """Layers for which a bank entry is given."""
        return len(self.attention)

    @property
    def num_attention(self) -> int:
        """Distinct attention weights."""
        return max(self.attention) + 1

    @property
    def num_ffn(self) -> int:
        """Distinct feed-forward weights."""
        return max(self.ffn) + 1

    @property
    def name(self) -> str:
        """``none``, ``attention``, ``ffn``, ``all``, ``groups-of-M``, or the indices, file-name safe."""
        names: tuple[SharingName, ...] = ("none", "attention", "ffn", "all")
        for mode in names:
            if self == Sharing.named(mode, self.num_layers):
                return mode
        size = self.attention.count(0)
        if self == Sharing.groups(self.num_layers, size):
            return f"groups-of-{size}"
        return f"a{'.'.join(map(str, self.attention))}f{'.'.join(map(str, self.ffn))}"


def read_sharing(sharing: str | Mapping[str, Any] | Sharing, num_layers: int) -> Sharing:
    """A sharing from its name, its indices as plain data, or itself; `InputError` where it does not fit."""
    if isinstance(sharing, str):
        return Sharing.named(sharing, num_layers)  # type: ignore[arg-type]  # checked there
    if isinstance(sharing, Mapping):
        if set(sharing) != {"attention", "ffn"}:
            raise InputError(f"sharing must be {SHARING_EXAMPLES}; got {shown(dict(sharing))}")
        sharing = Sharing(sharing["attention"], sharing["ffn"])
    if not isinstance(sharing, Sharing):
        raise InputError(f"sharing must be {SHARING_EXAMPLES}; got {shown(sharing)}")
    if sharing.num_layers != num_layers:
        raise InputError(
            f"sharing must have one bank index per layer: got {sharing.num_layers} for num_layers {num_layers}"
        )
    return sharing
