"""One run of an agent: from what a task asks for to a program, and from what it prints to a result."""
