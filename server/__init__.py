"""One process, many sessions: protocols, transports, admission, observability, command line."""
