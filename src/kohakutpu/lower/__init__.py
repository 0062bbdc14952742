"""From a traced kernel to encoded work: trace -> schedule (L2) -> unit programs (L1).

Each module decides one thing: `body` the expression, `tiling` the tile, `contraction`/`elementwise`/`rows` a band,
`vector_code` the vector core's words, `evaluate` what a schedule computes, `scheduling` which bands a kernel needs.
"""
