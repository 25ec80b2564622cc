"""`orbitkv demo`: a real manager, real engine processes, a trace, and the proof afterwards.

It shows what OrbitKV does and measures nothing that a GPU would do: times to first token are
*modelled*. Hits, traffic and the verdict are taken from the manager's log by other processes;
restored and wrong bytes are what the engine's ranks saw.
"""

from orbitkv.adapters.demo.command import command

__all__ = ["command"]
