"""Sections of pages that are too long for one script: each draws one picture from the frame and a few controls."""
