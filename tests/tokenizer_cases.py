"""Tokenizer files of many kinds, made here, for the tests that every text is encoded exactly or refused."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

SEPARATOR = "<|endoftext|>"
PLAIN = [f"The people of year {number} don't count to {number * number}." for number in range(60)]
"""Sixty texts of plain ASCII, without white space at their ends."""

Build = Callable[[], Tokenizer]


def byte_level(alphabet: bool = True, texts: list[str] = PLAIN) -> Tokenizer:
    """A byte-level BPE, with all 256 bytes or with those of the texts only."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=[SEPARATOR],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()) if alphabet else [],
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def changed(**parts: Any) -> Build:
    """A byte-level BPE with other parts: normalizer, pre_tokenizer, decoder, post_processor."""

    def build() -> Tokenizer:
        tokenizer = byte_level()
        for name, part in parts.items():
            setattr(tokenizer, name, part)
        return tokenizer

    return build


def edited(**fields: Any) -> Build:
    """A byte-level BPE whose file has other values of the model."""

    def build() -> Tokenizer:
        described = json.loads(byte_level().to_str())
        described["model"] |= fields
        return Tokenizer.from_str(json.dumps(described))

    return build


def with_tokens(*tokens: AddedToken | str, special: bool = False) -> Build:
    """A byte-level BPE with added tokens."""

    def build() -> Tokenizer:
        tokenizer = byte_level()
        (tokenizer.add_special_tokens if special else tokenizer.add_tokens)(list(tokens))
        return tokenizer

    return build


def template(post: str) -> Build:
    """A byte-level BPE that puts special tokens around a text."""

    def build() -> Tokenizer:
        tokenizer = byte_level()
        tokenizer.add_special_tokens(["<s>", "</s>"])
        ids = [(name, tokenizer.token_to_id(name)) for name in ("<s>", "</s>")]
        tokenizer.post_processor = processors.TemplateProcessing(single=post, special_tokens=ids)
        return tokenizer

    return build


def limited() -> Tokenizer:
    """Truncation and padding switched on."""
    tokenizer = byte_level()
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=10)
    return tokenizer


def trained(model: Any, trainer: Any, **parts: Any) -> Build:
    """Another model, trained on the plain texts."""

    def build() -> Tokenizer:
        tokenizer = Tokenizer(model())
        for name, part in parts.items():
            setattr(tokenizer, name, part)
        tokenizer.train_from_iterator(PLAIN, trainer())
        return tokenizer

    return build


def llama_like() -> Tokenizer:
    """Spaces as U+2581, all bytes as a fall-back, a leading space put on and stripped."""
    characters = sorted({character for text in PLAIN for character in text.replace(" ", "▁")} | {"▁"})
    tokens = [SEPARATOR, "<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *characters]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens([SEPARATOR])
    return tokenizer


def two_texts_of_one_id() -> Tokenizer:
    """The letters e and a have one id."""
    described = json.loads(byte_level().to_str())
    vocabulary = described["model"]["vocab"]
    described["model"]["merges"] = []
    described["model"]["vocab"] = {token: vocabulary[token] for token in vocabulary if len(token) == 1}
    described["model"]["vocab"]["a"] = vocabulary["e"]
    return Tokenizer.from_str(json.dumps(described))


def bpe_trainer() -> Any:
    return trainers.BpeTrainer(vocab_size=300, special_tokens=[SEPARATOR, "<unk>"], show_progress=False)


def word_trainer() -> Any:
    return trainers.WordLevelTrainer(special_tokens=[SEPARATOR, "<unk>"], show_progress=False)


@dataclass(frozen=True)
class Case:
    """A tokenizer, a text added to the plain ones as number 38, and what must come of it.

    `refused`: None where all texts are encoded exactly, else a pattern of the message.
    """

    name: str
    build: Build
    odd: str
    refused: str | None = None


AT_THE_ODD = r"document 38 of --data\.corpus"
AT_ONCE = r"document 1 of --data\.corpus"
ODD = "A text that ends with 你好世界 😀 Привет e\u0301 ﬁ\x00\u2028 ▁x"

CASES = [
    Case("byte level", byte_level, ODD),
    Case("byte level, marker text", byte_level, f"{SEPARATOR} in{SEPARATOR}{SEPARATOR}"),
    Case("byte level, part of the alphabet, ASCII", lambda: byte_level(alphabet=False), PLAIN[3]),
    Case(
        "byte level, part of the alphabet", lambda: byte_level(alphabet=False), "ends in Привет", AT_THE_ODD
    ),
    Case("NFKC, plain", changed(normalizer=normalizers.NFKC()), "plain"),
    Case("NFKC", changed(normalizer=normalizers.NFKC()), "the ﬁrst", AT_THE_ODD),
    Case("NFC", changed(normalizer=normalizers.NFC()), "cafe\u0301", AT_THE_ODD),
    Case("lower case", changed(normalizer=normalizers.Lowercase()), "x", AT_ONCE),
    Case("strip", changed(normalizer=normalizers.Strip()), " ends in space ", AT_THE_ODD),
    Case("replace", changed(normalizer=normalizers.Replace("zz", "z")), "buzz", AT_THE_ODD),
    Case("strip accents", changed(normalizer=normalizers.StripAccents()), "cafe\u0301", AT_THE_ODD),
    Case("Bert", changed(normalizer=normalizers.BertNormalizer(lowercase=False)), "tab\there", AT_THE_ODD),
    Case(
        "prefix space", changed(pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=True)), " x", AT_ONCE
    ),
    Case("no expression", changed(pre_tokenizer=pre_tokenizers.ByteLevel(False, use_regex=False)), ODD),
    Case(
        "split isolated",
        changed(
            pre_tokenizer=pre_tokenizers.Sequence(
                [
                    pre_tokenizers.Split(Regex(r"\d{1,3}|\s+|[^\s\d]+"), "isolated"),
                    pre_tokenizers.ByteLevel(False, use_regex=False),
                ]
            )
        ),
        ODD,
    ),
    Case(
        "split removed",
        changed(
            pre_tokenizer=pre_tokenizers.Sequence(
                [pre_tokenizers.Split("q", "removed"), pre_tokenizers.ByteLevel(False)]
            )
        ),
        "quite",
        AT_THE_ODD,
    ),
    Case(
        "digits, punctuation",
        changed(
            pre_tokenizer=pre_tokenizers.Sequence(
                [pre_tokenizers.Digits(True), pre_tokenizers.Punctuation(), pre_tokenizers.ByteLevel(False)]
            )
        ),
        ODD,
    ),
    Case("no decoder", changed(decoder=decoders.Fuse()), "x", AT_ONCE),
    Case(
        "decoder strips",
        changed(decoder=decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])),
        " begins with a space",
        AT_THE_ODD,
    ),
    Case("template, both ends", template("<s> $A </s>"), ODD),
    Case("template, begin", template("<s> $A"), "<s> is text </s>"),
    Case("truncation and padding", limited, ODD * 5),
    Case("ignore merges", edited(ignore_merges=True), ODD),
    Case("dropout", edited(dropout=0.3), "x", r"tokenizer\.json: its model has dropout 0\.3"),
    Case("no dropout", edited(dropout=0.0), ODD),
    Case("prefix of later parts", edited(continuing_subword_prefix="##", merges=[]), "x", AT_ONCE),
    Case("added tokens", with_tokens("你好", "people", " ", "of"), ODD),
    Case("added token with a byte's sign", with_tokens("Ġx"), "a Ġx", AT_THE_ODD),
    Case(
        "added token that swallows",
        with_tokens(AddedToken("世", lstrip=True, rstrip=True)),
        "x 世 y",
        AT_THE_ODD,
    ),
    Case("added word", with_tokens(AddedToken("count", single_word=True)), "count counts recount"),
    Case("letters called special", with_tokens("e", "T", "é", special=True), ODD + "é"),
    Case("two texts of one id", two_texts_of_one_id, "x", AT_ONCE),
    Case("like llama", llama_like, "A text that ends with 你好世界 😀", None),
    Case("like llama, the sign for a space", llama_like, "x ▁y", AT_THE_ODD),
    Case(
        "characters, unknown",
        trained(lambda: models.BPE(unk_token="<unk>"), bpe_trainer),
        "ends with 你好世界 😀",
        AT_THE_ODD,
    ),
    Case("characters, unknown dropped", trained(models.BPE, bpe_trainer), "ends with 你", AT_THE_ODD),
    Case(
        "Metaspace",
        trained(
            lambda: models.BPE(unk_token="<unk>"),
            bpe_trainer,
            pre_tokenizer=pre_tokenizers.Metaspace(),
            decoder=decoders.Metaspace(),
        ),
        "the people  don't ",
    ),
    Case(
        "Metaspace, the sign for a space",
        trained(
            lambda: models.BPE(unk_token="<unk>"),
            bpe_trainer,
            pre_tokenizer=pre_tokenizers.Metaspace(),
            decoder=decoders.Metaspace(),
        ),
        "the ▁people",
        AT_THE_ODD,
    ),
    Case(
        "words",
        trained(
            lambda: models.WordLevel(unk_token="<unk>"),
            word_trainer,
            pre_tokenizer=pre_tokenizers.Whitespace(),
        ),
        "x",
        AT_ONCE,
    ),
    Case(
        "words, no unknown",
        trained(
            lambda: models.WordLevel(unk_token="<none>"),
            word_trainer,
            pre_tokenizer=pre_tokenizers.WhitespaceSplit(),
        ),
        "never",
        r"document 38 of --data\.corpus.*cannot encode 'never'",
    ),
    Case(
        "word pieces",
        trained(
            lambda: models.WordPiece(unk_token="<unk>"),
            lambda: trainers.WordPieceTrainer(special_tokens=[SEPARATOR, "<unk>"], show_progress=False),
            pre_tokenizer=pre_tokenizers.BertPreTokenizer(),
            decoder=decoders.WordPiece(),
        ),
        "x",
        AT_ONCE,
    ),
    Case(
        "unigram",
        trained(
            models.Unigram,
            lambda: trainers.UnigramTrainer(
                special_tokens=[SEPARATOR, "<unk>"], unk_token="<unk>", show_progress=False, vocab_size=200
            ),
            pre_tokenizer=pre_tokenizers.Metaspace(),
            decoder=decoders.Metaspace(),
        ),
        "你",
        AT_THE_ODD,
    ),
]
