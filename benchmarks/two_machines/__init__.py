"""A run on two machines that are two network namespaces of this one."""
