"""What kernels of users share: enumerations, allocators and views, under the names of the published library."""
