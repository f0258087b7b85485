"""`python -m bench.rivals`: crcen compared with other libraries on 26 sets and more, by one protocol."""
