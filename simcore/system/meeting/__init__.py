"""What shares links: phases and collectives that are told as long as they are alone, and played once they meet."""
