"""Assembly: what each queue of a core does, as records, as text and as bytes."""
