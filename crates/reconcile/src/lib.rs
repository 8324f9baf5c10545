//! Watch caches, work queues and a clock: the loop around every decision.
