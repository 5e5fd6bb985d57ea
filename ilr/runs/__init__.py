"""What lies in run directories, sweeps and caches, read back as typed data; what makes two runs the same. No torch.

Reading order: `files` (a file's text, or one line that says why not), `plain_json` and `plain_yaml` (text as plain
data), `readers` (plain data checked by a schema), `schema` (what our files hold).
"""
