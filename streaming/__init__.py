"""Pure incremental stages between text and audio, each with ``push``, ``flush`` and ``reset``.

What belongs here: code whose result depends on its input alone, however the input is cut. What does
not: sockets, tasks, clocks (time is an argument), torch, logging above debug.
"""
