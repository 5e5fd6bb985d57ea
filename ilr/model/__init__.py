"""The decoder: what it is, what it costs, and its weights in motion.

Reading order. Without torch: `config` (sizes and choices), `sharing` (which weights a layer uses), `plan` (which
layers run, in what order, how often), `schedules` (those of the field by name), `cost` (parameters, FLOPs, bytes),
`anchors` (unrepeated models of equal cost), `memory` (what the machine must hold). With torch: `positions`,
`cache` (one slot per visit), `layers`, `metrics` (the one definition of NLL), `loss` (the head's NLL in chunks),
`initialise` (each weight from its own generator), `decoder` (embed, run any visits, predict), `compilation`
(compiled or not, activations kept or not), `device` (tried by its name), `inference` (measuring without leaving a
trace), `weights` and `llama` (weights from elsewhere), `fsdp` (sharded weights).
"""
