"""Where ranks meet: implementations other than threads."""
