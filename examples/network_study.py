"""What does a slower network cost Llama-3.1-70B on 64 H100s: fully sharded, and as the planner would cut it?"""

import linkscale as ls

model = ls.load_architecture("llama-3.1-70b")
for fabric in ("ib-400", "ib-100", "ib-400x1/node", "eth-100x1/node"):
    cluster = ls.parse_cluster("dgx-h100:64", scaleout=fabric)
    sharded = ls.plan(model, cluster, global_batch=128, seq_len=8192, stack="fsdp2", tp=1, pp=1).plans[0]
    best = ls.plan(model, cluster, global_batch=128, seq_len=8192).plans[0]
    cut = f"tp {best.strategy.tp} pp {best.strategy.pp} dp {best.strategy.dp}"
    print(f"{fabric:15s} sharded {sharded.estimate.step_s:6.2f} s   best {best.estimate.step_s:6.2f} s  ({cut})")
