"""Which Megatron-LM flags bear on time and memory, and which do not."""

from __future__ import annotations

import re

_UNDERSTOOD = """
    num-layers hidden-size num-attention-heads ffn-hidden-size kv-channels group-query-attention num-query-groups
    swiglu position-embedding-type max-position-embeddings untie-embeddings-and-output-weights disable-bias-linear
    normalization vocab-size padded-vocab-size make-vocab-size-divisible-by seq-length micro-batch-size
    global-batch-size tensor-model-parallel-size pipeline-model-parallel-size context-parallel-size cp-comm-type
    expert-model-parallel-size num-layers-per-virtual-pipeline-stage num-virtual-stages-per-pipeline-rank
    sequence-parallel use-distributed-optimizer use-megatron-fsdp use-custom-fsdp overlap-grad-reduce
    overlap-param-gather no-overlap-p2p-communication no-async-tensor-model-parallel-allreduce tp-comm-overlap
    recompute-activations recompute-granularity recompute-method recompute-num-layers activations-checkpoint-method
    checkpoint-activations fp16 bf16 fp8-format fp8 fp8-param-gather accumulate-allreduce-grads-in-fp32
    rotary-percent use-rotary-position-embeddings add-qkv-bias qk-layernorm squared-relu attention-dropout
    hidden-dropout grad-reduce-in-bf16 attention-backend use-flash-attn transformer-impl ddp-bucket-size
    nproc-per-node nnodes
"""
UNDERSTOOD = frozenset(_UNDERSTOOD.split())
"""Flags whose meaning reaches the plan."""

NO_EFFECT = re.compile(
    r"(?:train-|eval-|lr|min-lr|weight-decay|adam-|sgd-|optimizer\Z|clip-grad|init-method|seed|split\Z|start-weight-decay"
    r"|data-|vocab-file|merge-file|tokenizer-|num-workers|no-mmap|mock-data|dataloader-|no-create-attention-mask"
    r"|save|load|ckpt-|auto-detect-ckpt|dist-ckpt|no-load-|no-save-|exit-|finetune\Z|use-checkpoint-"
    r"|log-|tensorboard-|wandb-|timing-|no-log|manual-gc|distributed-timeout|distributed-backend|no-check-for-nan"
    r"|node-rank|master-|rdzv|standalone|use-mcore-models|loss-scale|initial-loss-scale|min-loss-scale|hysteresis"
    r"|norm-epsilon|layernorm-epsilon|apply-layernorm-1p|rotary-|no-position-embedding|override-opt"
    r"|step-batch-size-schedule|rampup-batch-size|attention-softmax-in-fp32|enable-experimental|fp8-amax|fp8-margin"
    r"|fp8-interval|kv-cache|inference-)"
)
"""Data, learning rates, checkpoints, logs, numerics of the same cost: they do not change the steady step.

A ramped batch (``step-batch-size-schedule``, ``rampup-batch-size``) ends at ``--global-batch-size``, which is priced.
"""
