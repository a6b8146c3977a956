"""Program of a Letta server's user, run by a Python that has Letta: fills archives, or prints what an archive lists.

    python letta_program.py fill < {"vectors": {TEXT: VECTOR}, "memories": [[USER, TEXT], ...]}
    python letta_program.py read

Both print the texts of each user as JSON. ``LETTA_PG_URI`` and ``LETTA_DIR`` are read by Letta.
"""

import asyncio
import json
import sys
from typing import Any

from letta.orm.base import Base  # type: ignore[import-not-found]
from letta.schemas.embedding_config import EmbeddingConfig  # type: ignore[import-not-found]
from letta.schemas.passage import Passage  # type: ignore[import-not-found]
from letta.server.db import db_registry  # type: ignore[import-not-found]
from letta.services.agent_manager import AgentManager  # type: ignore[import-not-found]
from letta.services.archive_manager import ArchiveManager  # type: ignore[import-not-found]
from letta.services.organization_manager import OrganizationManager  # type: ignore[import-not-found]
from letta.services.passage_manager import PassageManager  # type: ignore[import-not-found]
from letta.services.user_manager import UserManager  # type: ignore[import-not-found]


async def fill(given: dict[str, Any]) -> None:
    """Make Letta's tables and an archive for each user, and add their passages."""
    async with db_registry.async_session() as session:
        await (await session.connection()).run_sync(Base.metadata.create_all)
        await session.commit()
    await OrganizationManager().create_default_organization_async()
    owner = await UserManager().create_default_actor_async()
    model = EmbeddingConfig(
        embedding_endpoint_type="openai",
        embedding_endpoint="http://127.0.0.1:1/v1",
        embedding_model="local",
        embedding_dim=len(next(iter(given["vectors"].values()))),
    )
    archives: dict[str, str] = {}
    for user, text in given["memories"]:
        if user not in archives:
            made = await ArchiveManager().create_archive_async(name=user, embedding_config=model, actor=owner)
            archives[user] = made.id
        passage = Passage(
            text=text,
            embedding=given["vectors"][text],
            embedding_config=model,
            archive_id=archives[user],
            organization_id=owner.organization_id,
            tags=["work"],
        )
        await PassageManager().create_agent_passage_async(passage, owner)


async def read() -> dict[str, list[str]]:
    """Return the texts that Letta lists, by name of the archive."""
    owner = await UserManager().create_default_actor_async()
    listed = {}
    for archive in await ArchiveManager().list_archives_async(actor=owner):
        found = await AgentManager().query_agent_passages_async(actor=owner, archive_id=archive.id, limit=100)
        listed[archive.name] = sorted(passage.text for passage, *_ in found)
    return listed


async def main() -> None:
    """Do what the first argument names."""
    if sys.argv[1] == "fill":
        await fill(json.load(sys.stdin))
    print(json.dumps(await read()))


asyncio.run(main())
