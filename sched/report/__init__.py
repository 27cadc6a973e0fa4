"""Graphs and tables: functions that return strings; only commands write files."""
