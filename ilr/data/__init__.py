"""Text to batches: corpora, documents, tokenizer, prepared token files, the data module.

How a corpus is read, in this order: `files` (what a name or a pattern finds), `compression` (bytes), `decoding`
(text), `formats` (which reader), `rows` (the rules for rows), `json_stream`, `containers`, `hub`, `corpora`
(text files and built-in corpora), `content` (one hash for one text), `documents`, `corpus_documents`.
How it becomes ids: `tokenizer`, `pieces` and `encoding` (exactly, in bounded memory), `tokens` (streams on disk),
`recipe` (what decides them), `manifest`, `cache`, `duplicates`, `prepare`, `prepared`, `recorded` (a run's own text),
`seen` (documents of another text that a run was trained on).
How ids become batches: `order` (a function of seed and epoch), `blocks`, `loaders`, `module`.
"""

from typing import TYPE_CHECKING

from ilr.lazy import lazy_names

if TYPE_CHECKING:
    from ilr.data.blocks import NO_BLOCK as NO_BLOCK
    from ilr.data.manifest import Manifest as Manifest
    from ilr.data.module import TextData as TextData
    from ilr.data.tokens import DocumentTable as DocumentTable

__getattr__ = lazy_names(
    "ilr.data",
    {"TextData": "module", "NO_BLOCK": "blocks", "DocumentTable": "tokens", "Manifest": "manifest"},
)
