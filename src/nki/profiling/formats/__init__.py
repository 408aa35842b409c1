"""How a profile is kept and handed on: a folder, CSV, Perfetto, the Neuron Explorer."""
