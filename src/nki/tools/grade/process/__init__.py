"""The process in which a candidate is traced: what it may do, what it is asked, and what it answers."""
