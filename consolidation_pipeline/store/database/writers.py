"""SQL of the writer of a raw memory, by which evidence is counted.

An agent may claim any user, agent and session, so what one key wrote is of one writer. The fields of imports and
operators are trusted: sessions are writers, or else agents, or else users. Memories about which nothing is known count
as one writer together.
"""

# Of the raw memory `t`: equal for memories that are not independent evidence.
WRITER_KEY = """coalesce(t.writer,
    'session ' || nullif(t.session_id, ''), 'agent ' || nullif(t.agent_id, ''), 'user ' || nullif(t.user_id, ''), '')"""
