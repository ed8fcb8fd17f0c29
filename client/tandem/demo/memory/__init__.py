"""Jobs whose memory does not fit together: without Tandem, one after the other, and in turns."""
