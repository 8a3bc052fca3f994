"""Fuzzing. frame.c and utf8.c are for libFuzzer (see Makefile); the modules here are for atheris.

A module is a target: ``check(data)`` raises if an invariant is broken by what `data` makes the server say. ``python -m
fuzz NAME`` runs it under atheris, and tests/project/test_fuzz.py replays the kept corpus and runs hypothesis on it.
"""
