"""What agents call through the Model Context Protocol: tools that adapt ``service``, over stdio and HTTP."""
