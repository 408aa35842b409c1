"""What was probably meant by a word that is no command, option or name, and how this command line says it."""
