"""Characters of Chinese, Japanese and Korean and their pairs as words, and words of other scripts between them.

Postgres takes a run of letters for one word. Texts in these scripts have no blanks, so nothing was found in them but
whole clauses. Rewrites both tables of memories and drops their indexes for search, of which those on vectors would take
minutes: 100,000 memories of 1,536 dimensions took 7 minutes with them. The next run builds them again.

Revision: 0044
"""

import sqlalchemy as sa
from alembic import op

revision = "0044"
down_revision = "0043"
branch_labels = None
depends_on = None

_SCHEMA = "consolidation"
_TEXTS = {
    "task_memories": ("goal", "execution_summary", "result", "lessons_learned", "feedback"),
    "consolidated_memories": ("content",),
}
_HAN = r"\u3005\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
# Han, Hiragana, Katakana and Hangul.
_SIGNS = rf"{_HAN}\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\uac00-\ud7a3"
_SIGN = f"[{_SIGNS}]"
# A pair, and the last sign of its run if it is left over.
_PAIR = f"({_SIGN}{{2}})({_SIGN}(?!{_SIGN}))?"
# The first sign of a run; a run of two signs as a whole.
_HEAD = f"(?<!{_SIGN}){_SIGN}({_SIGN}(?!{_SIGN}))?"
# First the text with each run in pairs from its first sign on, then the pairs from the second on, then ideographs: pairs
# tell words apart, and single ideographs find them in other compounds. Of so many signs, a tsvector holds all words.
_FUNCTION = rf"""
CREATE FUNCTION {_SCHEMA}.split_scripts(body text) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT CASE WHEN body ~ '{_SIGN}' THEN concat_ws(' ',
        regexp_replace(regexp_replace(left(body, 50000), '({_SIGN}+)', ' \1 ', 'g'), '{_PAIR}', '\1 ', 'g'),
        regexp_replace(regexp_replace(regexp_replace(left(body, 50000), '[^{_SIGNS}]+', ' ', 'g'), '{_HEAD}', '', 'g'),
            '{_PAIR}', '\1 ', 'g'),
        regexp_replace(regexp_replace(left(body, 50000), '[^{_HAN}]+', ' ', 'g'), '([{_HAN}])', '\1 ', 'g')
    ) ELSE body END
$$;
COMMENT ON FUNCTION {_SCHEMA}.split_scripts IS
    'Text with the pairs of Chinese, Japanese and Korean characters, and ideographs, as words for full text search.'
"""


_LIST_VECTOR_INDEXES = """
    SELECT indexname FROM pg_indexes WHERE schemaname = :schema AND tablename = ANY(:tables) AND indexdef LIKE '%USING hnsw%'
"""


def _rewrite(expression: str) -> None:
    listed = {"schema": _SCHEMA, "tables": list(_TEXTS)}
    for name in op.get_bind().execute(sa.text(_LIST_VECTOR_INDEXES), listed).scalars().all():
        op.drop_index(name, schema=_SCHEMA)
    for table, columns in _TEXTS.items():
        document = " || ' ' || ".join(f"coalesce({column}, '')" for column in columns)
        words = expression.format(document=f"left({document}, 200000)")
        op.execute(
            f"ALTER TABLE {_SCHEMA}.{table} DROP COLUMN content_tsv, "
            f"ADD COLUMN content_tsv tsvector GENERATED ALWAYS AS (to_tsvector(language, {words})) STORED"
        )
        op.execute(f"COMMENT ON COLUMN {_SCHEMA}.{table}.content_tsv IS 'Full text in the row''s language.'")


def upgrade() -> None:
    op.execute(_FUNCTION)
    _rewrite(f"{_SCHEMA}.split_scripts({{document}})")


def downgrade() -> None:
    _rewrite("{document}")
    op.execute(f"DROP FUNCTION {_SCHEMA}.split_scripts")
