"""What does a slower network cost Llama-3.1-70B on 64 H100s, and what does the planner do about it?"""

import linkscale as ls

model = ls.load_architecture("llama-3.1-70b")
for fabric in ("ib-400", "ib-100", "ib-400x1/node", "eth-100x1/node"):
    cluster = ls.parse_cluster("dgx-h100:64", scaleout=fabric)
    best = ls.plan(model, cluster, global_batch=128, seq_len=8192).plans[0]
    step, parts, cut = best.estimate.step_s, best.estimate.breakdown_s, best.strategy
    exposed = parts.tp + parts.pp + parts.dp
    print(f"{fabric:15s} step {step:6.2f} s, exposed {exposed:5.2f} s  tp {cut.tp} pp {cut.pp} dp {cut.dp}")
