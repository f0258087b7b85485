"""`python -m bench.rivals`: CRCEN against other libraries on 26 sets and more, by one protocol for all."""
