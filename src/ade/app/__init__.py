"""The Python API: `Ade`, task functions, and handles."""
