"""Tests that drive a real Chromium."""
