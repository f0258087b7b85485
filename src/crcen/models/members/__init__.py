"""Members of a committee: one file each, listed in `crcen.models.members.registry`."""
