"""The embedded CPU engine: a small English model from a registry package, adapted to a voice.

What belongs here: the model's inputs and outputs, its incremental rendering, voice adaptation, and
the thread pool that shares the CPU. What does not: text rules and audio formats (``streaming``),
files and sessions.
"""
