#!/bin/bash
# GPT, 22 billion parameters, on 64 A100s.
torchrun --nproc_per_node 8 --nnodes 8 pretrain_gpt.py \
    --num-layers 48 \
    --hidden-size 6144 \
    --num-attention-heads 64 \
    --seq-length 2048 \
    --max-position-embeddings 2048 \
    --padded-vocab-size 51200 \
    --tensor-model-parallel-size 8 \
    --pipeline-model-parallel-size 1 \
    --sequence-parallel \
    --micro-batch-size 4 \
    --global-batch-size 128 \
    --recompute-activations \
    --bf16 \
    --use-flash-attn \
    --use-distributed-optimizer \
    --overlap-grad-reduce \
    --overlap-param-gather \
    --lr 1.0e-4 \
    --train-iters 500000
