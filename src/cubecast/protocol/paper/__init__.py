"""The papers' own protocols, line by line: VCube-PS [J] and VCube-PB [B]."""
