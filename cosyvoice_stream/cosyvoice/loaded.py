"""Everything that a CosyVoice engine loads."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import torch

from cosyvoice_stream.cosyvoice.checkpoint import ModelSpec
from cosyvoice_stream.cosyvoice.config import EngineConfig
from cosyvoice_stream.cosyvoice.device import DeviceLoop
from cosyvoice_stream.cosyvoice.lm_runner import LmRunner
from cosyvoice_stream.cosyvoice.networks import Networks, load_networks
from cosyvoice_stream.cosyvoice.prompt_cache import PromptCache
from cosyvoice_stream.cosyvoice.reference_models import ReferenceModels
from cosyvoice_stream.cosyvoice.segment_audio import AudioRunner
from cosyvoice_stream.cosyvoice.tokenizer import TextTokenizer
from cosyvoice_stream.cosyvoice.versions import BLANK_EN
from cosyvoice_stream.cosyvoice.worker import Worker
from cosyvoice_stream.models.flow import BLOCK_FRAMES

logger = logging.getLogger(__name__)


@dataclass
class Loaded:
    """What exists between `start` and `close`."""

    networks: Networks
    tokenizer: TextTokenizer
    references: ReferenceModels
    device: DeviceLoop
    worker: Worker
    budget_bytes: int | None
    """Memory for the flow states of live utterances."""


def load(spec: ModelSpec, config: EngineConfig) -> Loaded:
    """Load everything; blocks.

    Raises:
        ModelLoadError: A file is missing or damaged.
        ConfigError: The device or precision of the configuration is not there.
    """
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    tokenizer = TextTokenizer(spec.folder / BLANK_EN, spec.version)
    networks = load_networks(spec, config)
    cuda = networks.device.type == "cuda"
    references = ReferenceModels(spec, config.threads, cuda=cuda)
    lm = LmRunner(networks.lm, config.slots, config.rows_per_slot)
    lm.warm(config.slots)
    left = None if config.left_context_s is None else config.left_context_s * BLOCK_FRAMES
    version = spec.version.number
    audio = AudioRunner(networks.flow, networks.hift, version, config.right_context, left)
    cache = PromptCache(config.prompt_cache_mb << 20, config.prompt_cache_dir, networks.device)
    worker = Worker(lm, networks.lm.ids, audio, cache)
    budget = None if config.memory_mb is None else config.memory_mb << 20
    if budget is None and cuda:
        free, _ = torch.cuda.mem_get_info(networks.device)
        budget = max(free - (config.prompt_cache_mb << 20), 0) * 9 // 10
    logger.info(
        "CosyVoice %d on %s in %s: %d slots",
        spec.version.number,
        networks.device,
        networks.precision,
        config.slots,
    )
    return Loaded(networks, tokenizer, references, DeviceLoop(worker), worker, budget)
