"""Plan: the decision as a value. What was planned can be saved, diffed, predicted again and launched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from linkscale.base.errors import InputError
from linkscale.base.files import write_text
from linkscale.base.model import Model
from linkscale.plan.strategy import Strategy
from linkscale.workload.architecture import Architecture
from linkscale.workload.training import LoraTargets

# Words that YAML 1.1 or 1.2 reads as something other than text; anything unlike a plain word is quoted as well.
_NOT_TEXT = {"", "y", "n", "yes", "no", "on", "off", "true", "false", "null", "none"}


class Plan(Model, frozen=True):
    """A job, the cluster it runs on, and the strategy: all that ``predict`` needs.

    ``model`` is the name of a packaged model, the path of a ``config.json``, or the architecture itself.
    ``cluster`` is the command line's text (``dgx-h100:16384``), refined by ``scaleup`` and ``scaleout``;
    None where only the job is known, as from a launch script. ``lora_rank`` to ``capacity_factor`` are
    those of :class:`linkscale.workload.training.Training`; None: all weights, one document a sequence, experts as the
    model says.
    """

    model: str | Architecture
    strategy: Strategy
    global_batch: int
    seq_len: int
    cluster: str | None = None
    scaleup: str | None = None
    scaleout: str | None = None
    lora_rank: int | None = None
    lora_targets: LoraTargets | None = None
    packed_tokens: int | None = None
    expert_spread: float | None = None
    capacity_factor: float | None = None
    assumptions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("global_batch", "seq_len"):
            value = getattr(self, name)
            if value < 1:
                raise InputError(f"{name} = {value}; it must be at least 1")

    def save(self, path: str | Path) -> None:
        """Write the plan as YAML: beside the file, then renamed, so that nothing is half-written."""
        write_text(path, dump_plan(self))


def dump_plan(plan: Plan) -> str:
    """Return the plan as YAML that reads back equal, in YAML 1.1 and 1.2 alike."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: object) -> bool:
            """Write equal values out twice: the loader takes no aliases."""
            return True

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        plain = value[:1].isalpha() and value.lower() not in _NOT_TEXT
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=None if plain else '"')

    Dumper.add_representer(str, text)
    body = yaml.dump(_stated(plan), Dumper=Dumper, sort_keys=False, allow_unicode=True, width=110)
    return f"# linkscale plan: `linkscale predict` reads this file\n{body}"


def _stated(plan: Plan) -> dict[str, Any]:
    """Return the plan as plain values, without the fields that are left open."""
    values: dict[str, Any] = msgspec.to_builtins(plan)
    return {name: value for name, value in values.items() if value not in (None, [], ())}
