"""What a run of a sweep will be trained on, by content, before it is prepared. No torch."""

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ilr.data.cache import cache_directory
from ilr.data.content import content_hash
from ilr.data.corpora import Source, combine
from ilr.data.documents import Boundaries
from ilr.data.hub import HubRows
from ilr.data.prepare import hash_of
from ilr.data.recipe import Recipe, names_of
from ilr.data.tokenizer import load_tokenizer, tokenizer_hash
from ilr.runs.identity import by_recipe
from ilr.runs.options import Options, defaults_of


def planned_text(options: Options) -> dict[str, Any]:
    """The text of these options as part of an identity; local corpora count by their bytes, those of the hub by
    name and revision. Raises `InputError` for a corpus or a tokenizer that is not there.
    """
    data = {key: options.get(f"data.{key}", default) for key, default in defaults_of("data").items()}
    return _text(json.dumps(data, sort_keys=True))


@cache
def _text(described: str) -> dict[str, Any]:
    data = json.loads(described)
    names: dict[str, Any] = {
        role: names_of(role, data.pop(role)) for role in ("corpus", "validation", "test")
    }
    fields: dict[str, Any] = {name: data[name] for name in Recipe.__dataclass_fields__ if name not in names}
    recipe = Recipe(**fields, **names)
    cache = cache_directory(data["cache_dir"])
    sources = recipe.sources(cache)
    joined = Boundaries(recipe.document).by_pattern
    digests = {role: _digest(group, cache, joined) for role, group in sources.items()}
    content = recipe.tokenizer_content()
    given = None if content is None else tokenizer_hash(load_tokenizer(content, recipe.separator_token))
    options = {f"data.{key}": value for key, value in data.items()}
    return by_recipe(options, hash_of(digests), given)


def _digest(group: Sequence[Source], cache: Path, joined: bool) -> str:
    names = [
        f"{one.name} {one.config} {one.split} {one.revision} {one.column} {one.max_rows}"
        for one in group
        if isinstance(one, HubRows)
    ]
    return combine(*names) if len(names) == len(group) else content_hash(group, cache, joined=joined)
