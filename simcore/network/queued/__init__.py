"""Links with queues: finite buffers, flow control that pauses or drops, senders that slow down, several ways."""
