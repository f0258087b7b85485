"""Methods to compare with, and the table that names them all."""
