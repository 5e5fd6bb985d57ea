"""Text from a decoder, for every schedule, with the cache.

Reading order: `sampling` (from logits to a token), `windows` (which tokens are seen, past the context
too), `compiled` (the pass of one token as one graph), `decode` (the loop), `text` (tokens to printable
pieces).
"""
