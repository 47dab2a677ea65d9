"""What pages share: the frame, running a job with progress and cancel, words, export."""
