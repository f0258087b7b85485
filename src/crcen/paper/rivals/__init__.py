"""`crcen benchmark`: the networks against what a person would pick instead, on 26 sets, by one protocol for all."""
