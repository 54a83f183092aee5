"""Memory that NPUs share: buses between them and the network, and remote memory."""
