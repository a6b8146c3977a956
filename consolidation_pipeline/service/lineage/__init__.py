"""OpenLineage events of jobs: what a run read and wrote, table by table and memory by memory."""
