"""Aider's repository map without a model. Reads one request per line as JSON from standard input and answers each with
one line.

{"do": "map", "root": DIR, "files": [...]}            no cache: seconds for the tags alone, then for a whole map
{"do": "again", "root": DIR, "files": [...]}          the same with the tags of the previous request
{"do": "rank", "root": DIR, "files": [...], "message": TEXT, "most": N}   the files of the map in order
"""

import json
import os
import re
import shutil
import sys
import time
from pathlib import Path

import aider
from aider.coders.base_coder import Coder
from aider.repomap import RepoMap

# Aider's default budgets for a map if the model reads 200,000 tokens and no file is in the chat.
MAP_TOKENS = 4096
NO_FILES = 2
WINDOW = 200_000


class Model:
    """Counts tokens cheaply; aider's own counter would be slower."""

    def token_count(self, text):
        return len(text) // 4


class Silent:
    """Reads files as aider does and prints nothing."""

    def read_text(self, name, silent=False):
        try:
            return Path(name).read_text(encoding="utf-8")
        except (OSError, UnicodeError):
            return None

    def tool_output(self, *_args, **_more):
        pass

    tool_warning = tool_error = tool_output


class Asker:
    """The part of aider's `Coder` that finds names in a message."""

    get_file_mentions = Coder.get_file_mentions
    get_ident_mentions = Coder.get_ident_mentions
    get_ident_filename_matches = Coder.get_ident_filename_matches

    def __init__(self, root, files):
        self.files, self.root = files, root
        self.abs_read_only_fnames = set()

    def get_all_relative_files(self):
        return self.files

    get_addable_relative_files = get_all_relative_files

    def get_inchat_relative_files(self):
        return []


def map_of(root):
    return RepoMap(
        map_tokens=MAP_TOKENS,
        root=root,
        main_model=Model(),
        io=Silent(),
        max_context_window=WINDOW,
        map_mul_no_files=NO_FILES,
    )


def timed(work):
    begun = time.perf_counter()
    result = work()
    return time.perf_counter() - begun, result


def whole_map(root, files):
    paths = [os.path.join(root, file) for file in files]
    repo = map_of(root)

    def tags():
        return sum(len(repo.get_tags(path, file)) for path, file in zip(paths, files))

    # Skip broken links and submodules.
    kept = [(path, file) for path, file in zip(paths, files) if os.path.isfile(path)]
    paths, files = [path for path, _ in kept], [file for _, file in kept]
    tag_seconds, count = timed(tags)
    rest, text = timed(lambda: repo.get_repo_map([], paths))
    return {"tags": count, "tag_seconds": tag_seconds, "seconds": tag_seconds + rest, "bytes": len(text or "")}


def rank(root, files, message, most):
    """The files aider would see first: those the message names, which it offers to add to the chat, then those of the
    map, best first."""
    asker = Asker(root, files)
    named = asker.get_file_mentions(message)
    idents = asker.get_ident_mentions(message)
    fnames = named | asker.get_ident_filename_matches(idents)
    paths = [os.path.join(root, file) for file in files]
    tags = map_of(root).get_ranked_tags([], paths, fnames, idents)
    return list(dict.fromkeys(sorted(named) + [tag[0] for tag in tags]))[:most]


def main():
    sys.stderr = open(os.devnull, "w")
    for line in sys.stdin:
        order = json.loads(line)
        root, files = order["root"], order["files"]
        if order["do"] == "map":
            shutil.rmtree(os.path.join(root, RepoMap.TAGS_CACHE_DIR), ignore_errors=True)
        if order["do"] == "rank":
            answer = {"files": rank(root, files, order["message"], order["most"])}
        else:
            answer = whole_map(root, files)
        answer["version"] = aider.__version__
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
