"""The search for an order: which instruction of a program runs when, with addresses and a schedule for that.

Addresses and order depend on each other. Addresses for the order of the kernel give the same bytes to tensors that
follow each other, and nothing can bring their instructions together any more; an order in which much runs ahead needs
more memory. So candidates are made, each of them an order with addresses and a schedule, and one is chosen:

* `candidates`: what a candidate is, and what it grows from: a start, and an order of it.
* `starts`: the program as it is written and, where that has no room, other ways to lay it out that may have.
* `list_orders`: orders for a start, by the list scheduler, as the rows of `heuristics` have it.
* `evaluation`: addresses for an order, schedules for each segment at these addresses, and the time that it takes.
* `choice`: which schedule of a segment, and which candidate.
* `search`: how many candidates are made of a start; begin to read there.

The first start that has room is taken (`nki.passes.allocate_and_schedule`), and of its candidates the best one.
"""
