"""Pure decisions and records. No I/O, no clock, no dice: everything comes in as arguments."""
