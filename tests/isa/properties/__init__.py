"""Every engine-side instruction against independent references, over operators, dtypes, shapes, views and targets."""
