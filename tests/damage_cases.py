"""Kinds of damage to a file of ours."""


def damaged(kind: str, whole: bytes) -> bytes:
    """A file's bytes after one kind of damage."""
    return {
        "empty": b"",
        "one blank": b" \n",
        "cut": whole[: len(whole) // 2],
        "not UTF-8": b"\xff\xfe" + whole,
        "zeros": b"\0" * len(whole),
        "list": b"[]\n",
        "number": b"3\n",
        "null": b"null\n",
        "text": b'"text"\n',
        "nested": b'{"a":' * 5000 + b"\n",
        "huge number": b'{"step": ' + b"9" * 5000 + b"}\n",
        "surrogate": b'{"step": "\\ud800"}\n',
        "cut twice": whole[: len(whole) // 2] + b"\n" + whole,
    }[kind]


KINDS = (
    "empty", "one blank", "cut", "not UTF-8", "zeros", "list", "number", "null", "text", "nested", "huge number",
    "surrogate", "cut twice",
)  # fmt: skip
