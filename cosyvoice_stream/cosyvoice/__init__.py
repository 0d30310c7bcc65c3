"""The engine for official CosyVoice checkpoints: tokens, flow, vocoder, scheduling, voices.

What belongs here: everything between text and samples that is not a neural module (``models``).
"""
