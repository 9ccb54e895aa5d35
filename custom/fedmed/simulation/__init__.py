"""A job in NVFlare's simulator: the run, what it is compared to, and the report."""
