"""What an operation log can be asked, by a process that loads events and the kernel and no more of OrbitKV.

The commands are `*_command.py`; ARCHITECTURE.md says what stands in which folder.
"""
