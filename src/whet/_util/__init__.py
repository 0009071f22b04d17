"""Helpers that every part of whet may use: arguments, fields, files, functions of users. They know nothing of runs."""
