"""From what programs said to figures. Pure."""
