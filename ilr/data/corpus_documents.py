"""The documents of one corpus, the same at every reading: cut, blank ones left out, changes noticed."""

from collections.abc import Sequence

from ilr.data.content import ContentHash, corpus_items
from ilr.data.corpora import Pieces, Source
from ilr.data.documents import (
    FEWEST_DOCUMENTS,
    PSEUDO_CHARACTERS,
    Boundaries,
    NonEmpty,
    first_documents,
    pseudo_documents,
)
from ilr.data.duplicates import census
from ilr.data.recipe import Recipe
from ilr.errors import InputError
from ilr.progress import say


class CorpusDocuments:
    """The documents of one corpus: boundaries, pseudo-documents if there are few, empty ones left out.

    `number`, `bytes` and `digests` are those of the documents, `skipped` counts the empty ones, `pseudo` is
    whether they are pseudo-documents. `content` is the corpus's `content_hash`: InputError when a reading
    meets other text, as of a file that something still writes to.
    """

    def __init__(self, role: str, sources: Sequence[Source], recipe: Recipe, content: str) -> None:
        self._role, self._sources, self._recipe, self._content = role, sources, recipe, content
        self.pseudo = False
        boundaries, non_empty = Boundaries(recipe.document), NonEmpty()
        found = census(self._read(boundaries, non_empty))
        if boundaries.by_pattern and boundaries.matches == 0:
            raise InputError(
                f"--data.document {recipe.document!r} is none of file, line, paragraph, and as a regular "
                f"expression it matches no line of --data.{role}"
            )
        if found.number < FEWEST_DOCUMENTS:
            self.pseudo, few = True, found.number
            found = census(self._read(Boundaries(recipe.document), NonEmpty()))
            say(
                f"data: {role} has {few} document{'s' * (few != 1)}, fewer than {FEWEST_DOCUMENTS}: cut "
                f"at line ends into {found.number} pseudo-documents of about {PSEUDO_CHARACTERS} characters "
                "(some 2,048 tokens), split contiguously"
            )
        self.number, self.bytes, self.digests = found.number, found.bytes, found.digests
        self.skipped = non_empty.skipped
        if self.skipped:
            say(
                f"data: {role}: {self.skipped} empty document{'s' * (self.skipped != 1)} skipped "
                "(null, missing, or blank)"
            )
        if self.number == 0:
            raise InputError(f"--data.{role} has no text in it")

    def _read(self, boundaries: Boundaries, non_empty: NonEmpty) -> Pieces:
        documents = non_empty.filter(boundaries.split(self._items(boundaries.by_pattern)))
        documents = first_documents(documents, self._recipe.max_documents)
        return NonEmpty().filter(pseudo_documents(documents)) if self.pseudo else documents

    def _items(self, joined: bool) -> Pieces:
        content = ContentHash()
        yield from content.watch(corpus_items(self._sources, joined=joined))
        if content.hexdigest() != self._content:
            raise self._changed()

    def __iter__(self) -> Pieces:
        number = 0
        for piece in self._read(Boundaries(self._recipe.document), NonEmpty()):
            if number == self.number:
                raise self._changed()
            number += piece is None
            yield piece
        if number < self.number:
            raise self._changed()

    def _changed(self) -> InputError:
        return InputError(
            f"--data.{self._role} changed while it was read; start again when nothing writes to it"
        )
