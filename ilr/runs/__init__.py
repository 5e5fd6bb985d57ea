"""What lies in run directories, sweeps and caches, read back as typed data; what makes two runs the same. No torch.

Reading order: `files` (a file's text, or one line that says why not), `plain_json` and `plain_yaml` (text as plain
data), `readers` (plain data checked by a schema), `schema` and `option_schema` (what our files and
options hold), `tables`, then `options`, `normal_form` and `identity`: when two runs are the same.
"""
