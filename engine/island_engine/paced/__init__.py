"""A real SGLang engine whose steps take modelled time instead of being computed; its tokens are dummies.

Everything but the forward pass is SGLang's own: server, API, scheduler, radix cache, allocators, pool sizes. The clock
is the wall's under `island-engine serve --pace PROFILE` and virtual in the benches `arms` and `best`. Replaced is only
what `touchpoints.PACED` lists.
"""

PROFILE = "ISLAND_PACE"  # the launcher tells the scheduler process which profile; unset: nothing here is loaded
