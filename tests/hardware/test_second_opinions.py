"""Figures of the catalogue against arithmetic that does not come from it."""

from __future__ import annotations

import pytest

from linkscale.base.units import parse_quantity
from linkscale.hardware.catalogue import load_catalogue

CATALOGUE = load_catalogue()
GPUS = CATALOGUE.names("gpus")

# FLOP per SM and clock in 16 bits: 4 tensor cores of 512 multiply-adds on Hopper, of 256 on A100, 8 of 64 on Volta.
PER_SM_CLOCK = {"h100-sxm5": 4096, "h200-sxm": 4096, "a100-sxm4-80gb": 2048, "v100-sxm2-32gb": 1024}

# GB/s of one link and direction; a figure of both directions would be twice as much. 14.0625: RTX bridges.
NVLINK_GB_PER_S = {2: {25.0}, 3: {25.0, 14.0625}, 4: {25.0}, 5: {50.0}, 6: {50.0}}


@pytest.mark.parametrize(("name", "per_sm_clock"), PER_SM_CLOCK.items())
def test_the_dense_peak_is_what_the_tensor_cores_do_at_the_clock(name, per_sm_clock):
    gpu = CATALOGUE.gpu(name)
    assert gpu.peak_flops_per_s["fp16"] == pytest.approx(gpu.sm_count * per_sm_clock * gpu.boost_clock_hz, rel=0.01)


@pytest.mark.parametrize("name", [name for name in GPUS if CATALOGUE.gpu_entry(name).nvlink_per_gpu])
def test_every_nvlink_runs_at_the_rate_of_its_generation_in_one_direction(name):
    link = CATALOGUE.gpu_entry(name).nvlink_per_gpu
    assert link is not None
    rate = parse_quantity(link.bandwidth_per_link_per_direction, "bytes/s")
    assert rate / 1e9 in NVLINK_GB_PER_S[link.generation]


# Lists print GeForce's vector rate under tf32; those of H800 and Gaudi mix clocks.
MIXED = {"rtx-3090", "rtx-4090", "h800-sxm", "gaudi3"}
TF32 = [name for name in GPUS if CATALOGUE.gpu(name).peak_flops_per_s.get("tf32") and name not in MIXED]


@pytest.mark.parametrize("name", TF32)
def test_16_bits_run_at_twice_the_rate_of_tf32(name):
    peaks = CATALOGUE.gpu(name).peak_flops_per_s
    assert peaks["bf16"] == pytest.approx(2 * peaks["tf32"], rel=0.02)
