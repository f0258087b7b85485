"""Mixed tables: read them, find out what columns hold, make numbers of them, write them."""
