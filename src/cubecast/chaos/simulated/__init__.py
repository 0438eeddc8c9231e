"""Schedules in virtual time: ``cubecast sim chaos``."""
