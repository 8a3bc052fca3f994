"""Shared by every client: options, headers, protocol numbers, texts, and how a connection ended."""
