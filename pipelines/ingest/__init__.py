"""The first stage: files become landed records, landed records become facts by UTC day."""
