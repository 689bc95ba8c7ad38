"""Does Llama-3.1-405B scale? The best plan at each size, with the batch growing alongside."""

import linkscale as ls

model = ls.load_architecture("llama-3.1-405b")
for gpus in (512, 2048, 8192):
    cluster = ls.parse_cluster(f"dgx-h100:{gpus}")
    best = ls.plan(model, cluster, global_batch=gpus // 8, seq_len=8192).plans[0]
    rate = best.estimate.tokens_per_s_per_gpu
    cut = best.strategy
    print(f"{gpus:6d} GPUs  {rate:6.0f} tokens/s/GPU  tp {cut.tp} pp {cut.pp} vpp {cut.vpp} dp {cut.dp}")
