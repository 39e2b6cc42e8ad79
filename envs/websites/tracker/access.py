"""Who may do what on the tracker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from sqlite3 import Connection

from ..framework.records import DataRow, fetch_all, fetch_first
from ..framework.site import Forbidden, PageHandler, PageNotFound, PageRequest, PathParts, SiteAnswer

__all__ = ["ROLES", "VISIBLE", "ProjectPlace", "find_team_role", "get_user", "within"]

ROLES = ("guest", "reporter", "developer", "maintainer", "owner")
"""Each may do what those before it may do."""

VISIBLE = """(visibility = 'public' OR (visibility = 'internal' AND :who IS NOT NULL)
  OR EXISTS (SELECT 1 FROM project_member WHERE project = project.id AND username = :who)
  OR EXISTS (SELECT 1 FROM team_member WHERE team = space AND username = :who) OR space = :who)"""
"""Condition on a row of `project`; `:who` is the visitor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectPlace:
    """A project as the visitor may see it."""

    project: DataRow
    role: str
    """Empty where one has none."""

    @property
    def id(self) -> int:
        return int(self.project["id"])

    @property
    def url(self) -> str:
        return f"/{self.project['space']}/{self.project['path']}"

    def may(self, least: str) -> bool:
        return bool(self.role) and ROLES.index(self.role) >= ROLES.index(least)

    def must(self, least: str) -> None:
        if not self.may(least):
            raise Forbidden(f"Only a {least} of the project may do this.")


def get_user(request: PageRequest) -> str:
    if request.user is None:
        raise Forbidden("Sign in first.")
    return request.user


def find_team_role(db: Connection, team: str, username: str | None) -> str:
    found = fetch_first(db, "SELECT role FROM team_member WHERE team = ? AND username = ?", team, username)
    return str(found["role"]) if found else ""


def within(
    handler: Callable[[Connection, PageRequest, ProjectPlace, PathParts], SiteAnswer],
    least: str = "",
    *,
    signed_in: bool = False,
) -> PageHandler:
    """Open a page of a project to those who may see the project and have the required role."""

    def handle(db: Connection, request: PageRequest, parts: PathParts) -> SiteAnswer:
        place = _place(db, request, parts)
        if least or signed_in:
            get_user(request)
        if least:
            place.must(least)
        return handler(db, request, place, parts)

    return handle


def _place(db: Connection, request: PageRequest, parts: PathParts) -> ProjectPlace:
    project = fetch_first(db, "SELECT * FROM project WHERE space = ? AND path = ?", parts["space"], parts["project"])
    role = _role(db, project, request.user) if project else ""
    if project is None or not (role or _open_to(request.user, project)):
        raise PageNotFound("There is no such project, or it is not for you to see.")
    return ProjectPlace(project=project, role=role)


def _open_to(username: str | None, project: DataRow) -> bool:
    return project["visibility"] == "public" or (project["visibility"] == "internal" and username is not None)


def _role(db: Connection, project: DataRow, username: str | None) -> str:
    own = fetch_all(db, "SELECT role FROM project_member WHERE project = ? AND username = ?", project["id"], username)
    held = [each["role"] for each in own] + [find_team_role(db, project["space"], username)]
    if username and project["space"] == username:
        held.append("owner")
    return max(filter(None, held), key=ROLES.index, default="")
