"""From a framework's own graph to the records of the graph compiler."""
