"""Chips, servers and networks as data, and how long collectives among their cores take."""

from nki.topology.load import instance_names, instance_of, load_instance
from nki.topology.records import Instance
from nki.topology.times import CollectiveTime, collective_time

__all__ = ["CollectiveTime", "Instance", "collective_time", "instance_names", "instance_of", "load_instance"]
