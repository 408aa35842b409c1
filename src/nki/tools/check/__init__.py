"""``nki check``: everything that is wrong with a kernel, and with the program that is made of it."""
