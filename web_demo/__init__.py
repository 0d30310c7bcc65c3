"""Static files of the browser page, served by ``cosyvoice_stream.server``."""
