"""Neural modules of CosyVoice 2 and 3, in the order in which speech is made.

``qwen2`` and ``speech_lm`` write speech tokens, ``conformer``/``unet`` (version 2) and ``dit``
(version 3) turn them into mel frames, ``hift`` turns those into samples. Modules hold weights only:
whatever belongs to one utterance is a typed state that is passed in and returned. What does not
belong here: files, checkpoints, threads, scheduling.

Letters in shapes, everywhere: B batch, K tokens, T frames, N samples, M = 80 mel bands, D width, H
heads.
"""
