"""What clients ask, one class for each word of the wire: the request as a command, its result as a reply.

The only part of the shell that knows the wire's vocabulary (`orbitkv.io.wire`) and its sealed handles
(`orbitkv.io.tokens`), neither of which does any I/O. Decides nothing that the kernel can decide.
"""
