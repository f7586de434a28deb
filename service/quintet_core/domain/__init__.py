"""Plain data and pure rules of queues and jobs. Standard library only."""
