"""What all compiled code has in common: how it is compiled and kept, arrays that grow."""
