"""Control of a running evaluation: its limits, its progress, its interrupts."""
