"""Shared by all compiled code: how it is compiled and kept, arrays that grow."""
