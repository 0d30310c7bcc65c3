"""Wire formats of phone lines, and the bridge from a call to speech.

Here belong the codecs of carriers and telephone servers (bytes in, events out, no sockets), their
transports, and what they share: `line_clock`, `line`, `call`. Nothing here is imported by the
server; the server finds the package by name (`cosyvoice_stream.server.extensions`).
"""
