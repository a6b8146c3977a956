"""MCP server (Model Context Protocol): tools for agents over stdio and HTTP; each tool calls ``service``."""
