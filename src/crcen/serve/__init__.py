"""`crcen serve` (inference server) and `crcen app` (local web application); needs the extra ``serve``."""
