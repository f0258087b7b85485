"""Config in, tidy rows out; tables and figures derived from rows."""
