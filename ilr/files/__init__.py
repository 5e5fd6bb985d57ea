"""Our files: read and checked, written whole, one writer at a time. No torch.

Reading order: `text` (a file's text, or one line that says why not), `plain_json` and `plain_yaml` (text as plain
data), `plain` (parsed options as plain data), `readers` (plain data checked by a schema), `places` (directories
for results), `lock` (one writer at a time).
"""
