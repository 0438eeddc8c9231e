"""Live nodes: the production protocol over TCP, with asyncio."""
