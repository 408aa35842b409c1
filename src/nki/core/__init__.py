"""Words that every layer uses; nothing here knows an instruction."""
